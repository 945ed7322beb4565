// Command gophercloud leads servers through a life as a Go program does: it signs in by the OS_* variables, and prints
// one JSON object with what it saw. It ends with 1 and the error of the library where a request is refused.
//
//	gophercloud servers FLAVOR LARGER-FLAVOR IMAGE NUMBER
//	gophercloud attached FLAVOR IMAGE OUTSIDE-NETWORK
//
// The second story is about what servers are attached to: ports, floating addresses and volumes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack"
	"github.com/gophercloud/gophercloud/openstack/compute/v2/extensions/keypairs"
	"github.com/gophercloud/gophercloud/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/openstack/imageservice/v2/images"
	"github.com/gophercloud/gophercloud/pagination"
)

// patience is how many seconds a server may take to reach a status.
const patience = 120

// saw is what the story has seen, by the name of the step.
var saw = map[string]interface{}{}

// must ends the program where a step failed.
func must(step string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", step, err)
		os.Exit(1)
	}
}

// cloud is what a story needs: both services, how others are found, and the ids of flavor and image.
type cloud struct {
	provider       *gophercloud.ProviderClient
	endpoint       gophercloud.EndpointOpts
	compute, image *gophercloud.ServiceClient
	flavor, source string
}

// signIn reads the OS_* variables and looks up what the names on the command line mean.
func signIn(flavor, image string) cloud {
	options, err := openstack.AuthOptionsFromEnv()
	must("environment", err)
	provider, err := openstack.AuthenticatedClient(options)
	must("sign in", err)
	endpoint := gophercloud.EndpointOpts{Region: os.Getenv("OS_REGION_NAME")}
	compute, err := openstack.NewComputeV2(provider, endpoint)
	must("compute endpoint", err)
	store, err := openstack.NewImageServiceV2(provider, endpoint)
	must("image endpoint", err)
	found, err := images.List(store, images.ListOpts{Name: image}).AllPages()
	must("image", err)
	all, err := images.ExtractImages(found)
	must("image", err)
	return cloud{provider, endpoint, compute, store, flavorID(compute, flavor), all[0].ID}
}

// flavorID returns the id of the flavor with a name.
func flavorID(compute *gophercloud.ServiceClient, name string) string {
	found, err := flavors.ListDetail(compute, flavors.ListOpts{}).AllPages()
	must("flavors", err)
	all, err := flavors.ExtractFlavors(found)
	must("flavors", err)
	for _, one := range all {
		if one.Name == name {
			return one.ID
		}
	}
	must("flavors", fmt.Errorf("no flavor %q", name))
	return ""
}

// create asks for a server with the key pair and waits until it is ACTIVE.
func (c cloud) create(name, key string) (string, error) {
	options := keypairs.CreateOptsExt{
		CreateOptsBuilder: servers.CreateOpts{
			Name: name, FlavorRef: c.flavor, ImageRef: c.source, Metadata: map[string]string{"name": name},
		},
		KeyName: key,
	}
	made, err := servers.Create(c.compute, options).Extract()
	if err != nil {
		return "", err
	}
	return made.ID, servers.WaitForStatus(c.compute, made.ID, "ACTIVE", patience)
}

// remove deletes a server and waits until it is not found.
func (c cloud) remove(id string) error {
	if err := servers.Delete(c.compute, id).ExtractErr(); err != nil {
		return err
	}
	return gophercloud.WaitFor(patience, func() (bool, error) {
		_, err := servers.Get(c.compute, id).Extract()
		if _, gone := err.(gophercloud.ErrDefault404); gone {
			return true, nil
		}
		return false, err
	})
}

// pages lists all servers seven at a time and returns their sorted names and the size of each page.
func (c cloud) pages() ([]string, []int) {
	names, sizes := []string{}, []int{}
	err := servers.List(c.compute, servers.ListOpts{Limit: 7}).EachPage(func(page pagination.Page) (bool, error) {
		some, err := servers.ExtractServers(page)
		if err != nil {
			return false, err
		}
		for _, one := range some {
			names = append(names, one.Name)
		}
		sizes = append(sizes, len(some))
		return true, nil
	})
	must("list", err)
	sort.Strings(names)
	return names, sizes
}

// together does the work for each number at the same time and returns the results in order.
func together(number int, work func(int) (string, error)) []string {
	results, errs := make([]string, number), make([]error, number)
	var group sync.WaitGroup
	for i := 0; i < number; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			results[i], errs[i] = work(i)
		}(i)
	}
	group.Wait()
	for _, err := range errs {
		must("in parallel", err)
	}
	return results
}

// one leads a server from its key pair to its end.
func (c cloud) one(larger string) {
	pair, err := keypairs.Create(c.compute, keypairs.CreateOpts{Name: "go"}).Extract()
	must("key pair", err)
	saw["private key"] = pair.PrivateKey != ""
	again, err := keypairs.Get(c.compute, "go").Extract()
	must("key pair again", err)
	saw["fingerprint kept"] = pair.Fingerprint == again.Fingerprint

	id, err := c.create("life", "go")
	must("create", err)
	shown, err := servers.Get(c.compute, id).Extract()
	must("show", err)
	saw["key of the server"] = shown.KeyName
	saw["metadata"] = shown.Metadata

	must("resize", servers.Resize(c.compute, id, servers.ResizeOpts{FlavorRef: larger}).ExtractErr())
	must("resized", servers.WaitForStatus(c.compute, id, "VERIFY_RESIZE", patience))
	must("confirm", servers.ConfirmResize(c.compute, id).ExtractErr())
	must("confirmed", servers.WaitForStatus(c.compute, id, "ACTIVE", patience))
	shown, err = servers.Get(c.compute, id).Extract()
	must("show", err)
	saw["resized"] = shown.Flavor["id"] == larger

	picture, err := servers.CreateImage(c.compute, id, servers.CreateImageOpts{Name: "of-life"}).ExtractImageID()
	must("image of the server", err)
	must("image active", gophercloud.WaitFor(patience, func() (bool, error) {
		got, err := images.Get(c.image, picture).Extract()
		return err == nil && got.Status == images.ImageStatusActive, err
	}))
	must("image deleted", images.Delete(c.image, picture).ExtractErr())

	must("delete", c.remove(id))
	replaced, err := c.create("life", "go")
	must("replace", err)
	saw["replaced"] = replaced != id
	must("delete the replacement", c.remove(replaced))
	must("delete the key pair", keypairs.Delete(c.compute, "go").ExtractErr())
}

// many builds servers in parallel, lists them by pages, and deletes them in parallel.
func (c cloud) many(number int) {
	ids := together(number, func(i int) (string, error) { return c.create(fmt.Sprintf("many-%02d", i), "") })
	names, sizes := c.pages()
	saw["names"], saw["pages"] = names, sizes
	together(number, func(i int) (string, error) { return "", c.remove(ids[i]) })
	left, _ := c.pages()
	saw["left"] = left
}

func main() {
	switch words := os.Args[1:]; {
	case len(words) == 5 && words[0] == "servers":
		number, err := strconv.Atoi(words[4])
		must("NUMBER", err)
		c := signIn(words[1], words[3])
		c.one(flavorID(c.compute, words[2]))
		c.many(number)
	case len(words) == 4 && words[0] == "attached":
		attached(signIn(words[1], words[2]), words[3])
	default:
		fmt.Fprintln(os.Stderr, "usage: gophercloud servers FLAVOR LARGER-FLAVOR IMAGE NUMBER")
		fmt.Fprintln(os.Stderr, "       gophercloud attached FLAVOR IMAGE OUTSIDE-NETWORK")
		os.Exit(2)
	}
	must("output", json.NewEncoder(os.Stdout).Encode(saw))
}
