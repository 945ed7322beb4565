package main

import (
	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack"
	"github.com/gophercloud/gophercloud/openstack/blockstorage/v3/snapshots"
	"github.com/gophercloud/gophercloud/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/openstack/compute/v2/extensions/attachinterfaces"
	"github.com/gophercloud/gophercloud/openstack/compute/v2/extensions/bootfromvolume"
	"github.com/gophercloud/gophercloud/openstack/compute/v2/extensions/volumeattach"
	"github.com/gophercloud/gophercloud/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/subnets"
)

// surroundings is what a server is attached to: networks and volumes.
type surroundings struct {
	cloud
	network, volume *gophercloud.ServiceClient
	mine, subnet    string
}

// around makes a network behind a router to the outside.
func around(c cloud, outside string) (surroundings, func()) {
	network, err := openstack.NewNetworkV2(c.provider, c.endpoint)
	must("network endpoint", err)
	volume, err := openstack.NewBlockStorageV3(c.provider, c.endpoint)
	must("volume endpoint", err)
	mine, err := networks.Create(network, networks.CreateOpts{Name: "go"}).Extract()
	must("network", err)
	subnet, err := subnets.Create(network, subnets.CreateOpts{
		NetworkID: mine.ID, CIDR: "10.9.0.0/24", IPVersion: gophercloud.IPv4,
	}).Extract()
	must("subnet", err)
	gateway := &routers.GatewayInfo{NetworkID: outside}
	router, err := routers.Create(network, routers.CreateOpts{Name: "go", GatewayInfo: gateway}).Extract()
	must("router", err)
	_, err = routers.AddInterface(network, router.ID, routers.AddInterfaceOpts{SubnetID: subnet.ID}).Extract()
	must("router to the subnet", err)
	return surroundings{c, network, volume, mine.ID, subnet.ID}, func() {
		_, err := routers.RemoveInterface(network, router.ID, routers.RemoveInterfaceOpts{SubnetID: subnet.ID}).Extract()
		must("router from the subnet", err)
		must("delete the router", routers.Delete(network, router.ID).ExtractErr())
		must("delete the network", networks.Delete(network, mine.ID).ExtractErr())
	}
}

// addresses returns kind and address of each interface of a server on the network, once there are so many.
func (s surroundings) addresses(id string, number int) [][]string {
	var found [][]string
	must("addresses", gophercloud.WaitFor(patience, func() (bool, error) {
		shown, err := servers.Get(s.compute, id).Extract()
		if err != nil {
			return false, err
		}
		found = [][]string{}
		of, _ := shown.Addresses["go"].([]interface{})
		for _, one := range of {
			said := one.(map[string]interface{})
			found = append(found, []string{said["OS-EXT-IPS:type"].(string), said["addr"].(string)})
		}
		return len(found) == number, nil
	}))
	return found
}

// port makes a port with an address.
func (s surroundings) port(address string) string {
	made, err := ports.Create(s.network, ports.CreateOpts{
		NetworkID: s.mine, FixedIPs: []ports.IP{{SubnetID: s.subnet, IPAddress: address}},
	}).Extract()
	must("port", err)
	return made.ID
}

// interfaces builds a server with a port, leads a floating address to it, attaches another port, and takes all away.
func (s surroundings) interfaces(outside string) {
	brought, another := s.port("10.9.0.7"), s.port("10.9.0.8")
	made, err := servers.Create(s.compute, servers.CreateOpts{
		Name: "ports", FlavorRef: s.flavor, ImageRef: s.source, Networks: []servers.Network{{Port: brought}},
	}).Extract()
	must("create with a port", err)
	must("with a port", servers.WaitForStatus(s.compute, made.ID, "ACTIVE", patience))
	saw["address of a port"] = s.addresses(made.ID, 1)
	floating, err := floatingips.Create(s.network, floatingips.CreateOpts{
		FloatingNetworkID: outside, PortID: brought,
	}).Extract()
	must("floating address", err)
	both := s.addresses(made.ID, 2)
	saw["floating address"] = both[1][0] == "floating" && both[1][1] == floating.FloatingIP
	_, err = floatingips.Update(s.network, floating.ID, floatingips.UpdateOpts{PortID: new(string)}).Extract()
	must("floating address away", err)
	s.addresses(made.ID, 1)
	must("delete the floating address", floatingips.Delete(s.network, floating.ID).ExtractErr())

	_, err = attachinterfaces.Create(s.compute, made.ID, attachinterfaces.CreateOpts{PortID: another}).Extract()
	must("attach a port", err)
	page, err := attachinterfaces.List(s.compute, made.ID).AllPages()
	must("interfaces", err)
	listed, err := attachinterfaces.ExtractInterfaces(page)
	must("interfaces", err)
	fixed := []string{}
	for _, one := range listed {
		fixed = append(fixed, one.FixedIPs[0].IPAddress)
	}
	saw["interfaces"] = fixed
	must("detach a port", attachinterfaces.Delete(s.compute, made.ID, another).ExtractErr())
	saw["address that is left"] = s.addresses(made.ID, 1)
	must("delete", s.remove(made.ID))
	for _, one := range []string{brought, another} {
		must("delete the port", ports.Delete(s.network, one).ExtractErr())
	}
}

// becomes waits until a volume is so.
func (s surroundings) becomes(id, status string) {
	must("volume "+status, volumes.WaitForStatus(s.volume, id, status, patience))
}

// gone waits until nothing is left of a volume.
func (s surroundings) gone(id string) {
	must("volume gone", gophercloud.WaitFor(patience, func() (bool, error) {
		_, err := volumes.Get(s.volume, id).Extract()
		if _, gone := err.(gophercloud.ErrDefault404); gone {
			return true, nil
		}
		return false, err
	}))
}

// booted builds a server that boots from a new volume, and returns its id and that of the volume.
func (s surroundings) booted(name string, root bootfromvolume.BlockDevice) (string, string) {
	root.DestinationType, root.VolumeSize = bootfromvolume.DestinationVolume, 1
	made, err := bootfromvolume.Create(s.compute, bootfromvolume.CreateOptsExt{
		CreateOptsBuilder: servers.CreateOpts{
			Name: name, FlavorRef: s.flavor, Networks: []servers.Network{{UUID: s.mine}},
		},
		BlockDevice: []bootfromvolume.BlockDevice{root},
	}).Extract()
	must("boot from a volume", err)
	must("booted from a volume", servers.WaitForStatus(s.compute, made.ID, "ACTIVE", patience))
	attached := s.attached(made.ID)
	return made.ID, attached[0].VolumeID
}

// attached lists the volumes of a server.
func (s surroundings) attached(id string) []volumeattach.VolumeAttachment {
	page, err := volumeattach.List(s.compute, id).AllPages()
	must("attachments", err)
	found, err := volumeattach.ExtractVolumeAttachments(page)
	must("attachments", err)
	return found
}

// disks boots servers from volumes, of an image and of a snapshot, and attaches another volume to one of them.
func (s surroundings) disks() {
	server, root := s.booted("volumes", bootfromvolume.BlockDevice{SourceType: bootfromvolume.SourceImage, UUID: s.source})
	s.becomes(root, "in-use")
	data, err := volumes.Create(s.volume, volumes.CreateOpts{Name: "data", Size: 2}).Extract()
	must("volume", err)
	s.becomes(data.ID, "available")
	added, err := volumeattach.Create(s.compute, server, volumeattach.CreateOpts{VolumeID: data.ID}).Extract()
	must("attach", err)
	s.becomes(data.ID, "in-use")
	devices := []string{}
	for _, one := range s.attached(server) {
		devices = append(devices, one.Device)
	}
	saw["devices"] = devices
	again, err := volumeattach.Get(s.compute, server, added.ID).Extract()
	must("attachment", err)
	saw["attachment"] = again.VolumeID == data.ID && again.ServerID == server && again.Device == added.Device
	volume, err := volumes.Get(s.volume, data.ID).Extract()
	must("attached volume", err)
	saw["attached to"] = volume.Attachments[0].ServerID == server && volume.Attachments[0].Device == added.Device
	_, err = volumeattach.Create(s.compute, server, volumeattach.CreateOpts{VolumeID: data.ID}).Extract()
	_, refused := err.(gophercloud.ErrDefault400)
	saw["attached once"] = refused
	must("detach", volumeattach.Delete(s.compute, server, added.ID).ExtractErr())
	s.becomes(data.ID, "available")
	saw["left"] = len(s.attached(server))

	shot, err := snapshots.Create(s.volume, snapshots.CreateOpts{VolumeID: root, Name: "shot", Force: true}).Extract()
	must("snapshot", err)
	must("snapshot available", snapshots.WaitForStatus(s.volume, shot.ID, "available", patience))
	copied, itsRoot := s.booted("copied", bootfromvolume.BlockDevice{
		SourceType: bootfromvolume.SourceSnapshot, UUID: shot.ID, DeleteOnTermination: true,
	})
	must("delete the copy", s.remove(copied))
	s.gone(itsRoot)
	must("delete", s.remove(server))
	s.becomes(root, "available")
	must("delete the snapshot", snapshots.Delete(s.volume, shot.ID).ExtractErr())
	for _, one := range []string{root, data.ID} {
		must("delete the volume", volumes.Delete(s.volume, one, volumes.DeleteOpts{}).ExtractErr())
		s.gone(one)
	}
}

// attached leads servers through what they are attached to.
func attached(c cloud, outside string) {
	s, undo := around(c, outside)
	s.interfaces(outside)
	s.disks()
	undo()
}
