# make up      install into this clone and start a whole cloud; UP_ARGS for more: make up UP_ARGS="--cells 1"
#              (sizes of a new cloud; one that is there never becomes smaller)
#              PROCESSES=1: each role in processes of its own, over NATS and PostgreSQL, which are installed if permitted
#              DRIVER=libvirt: the same, with virtual machines of QEMU for guests, one host for each cell (docs/libvirt.md)
# make test    install the rest and run every test: walks and matrices as a sample, drawn from a seed that is printed last
#              (SAMPLE_SEED=7 draws that of another run again), after the 25 slowest tests and the time by folder
# make crash   every case of the walks in which processes die; DRIVER=libvirt: of that with guests of QEMU
# make test-everywhere   the walks and matrices with every case: hours (also: make test-slow)
# make check   format, lint, types, import rules, fast tests: no servers, of searches by hypothesis a quarter of the examples
# make demo    20 servers with injected failures, where each landed and why
# make bench   how fast servers are built
# make chaos   build and delete while the cloud is killed: make chaos SEED=7 BUILDS=200 DURATION=60; over many processes,
#              NATS and PostgreSQL: make chaos DEPLOYMENT=processes; FROM_RELEASE=1 begins with processes of the last
#              release (FROM_RELEASE=0.5.0: of that one) and replaces them one by one, forth, back and forth; NO_RESTORE=1
#              restores no backup, so that servers move while faults happen; DEPLOYMENT=services: beside a network and a
#              volume service that fail as well
# make soak    the same for ten minutes while schedulers and the backends they share are killed: make soak SOAK_ARGS="--backend nats"
#              chaos, soak and the benchmarks are the laboratory (lab/), which `scripts/bootstrap lab` installs
# make tempest OpenStack's own test suite against a cloud beside a real Keystone, Glance, Neutron and Cinder; BARE=1 beside
#              Keystone and Glance, without networks and volumes; OWN=1 with Skep's own identity, images and networks: up to
#              50 minutes (docs/conformance.md); TEMPEST_ARGS="--regex resize" chooses tests; OWN=1 DRIVER=libvirt as root:
#              tests that log into guests, which are virtual machines of QEMU
# make fuzz    send requests of any content to all five HTTP services: make fuzz SEED=7 CASES=20000; a fault is a 5xx, an answer
#              that the service's document does not have, or none
# make install-libvirt   what the driver `libvirt` needs: QEMU and libvirt, if permitted, and its client for .venv/
# make lock    resolve the dependencies anew

PYTHON ?=
export PYTHON
# Without the bytecode that Python keeps, each process would compile everything anew: seconds for each start.
unexport PYTHONDONTWRITEBYTECODE
UP_ARGS ?=
PROCESSES ?=
DRIVER ?=
DEMO_ARGS ?=
BENCH_ARGS ?= --servers 2000 --concurrency 32 --hosts 200 --cells 2 --json
SEED ?=
DEPLOYMENT ?= all-in-one
FROM_RELEASE ?=
BUILDS ?= 200
DURATION ?= 60
LOCK_ARGS ?=
TEST_ARGS ?=
SOAK_ARGS ?=
BARE ?=
TEMPEST_ARGS ?=
CASES ?= 20000
FUZZ_ARGS ?=
SLOWEST = 25
PYTEST = .venv/bin/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=$(SLOWEST)
FAST_TESTS = $(wildcard tests/unit tests/property tests/contract tests/architecture)

# Many tests wait for leases and graces: two cores have work for three workers. Of the fast tests few wait.
test test-everywhere crash: WORKERS ?= 3
fast-tests: WORKERS ?= 2

.PHONY: up demo bench chaos soak tempest fuzz test test-everywhere test-slow crash check types fast-tests format lock install-run install-lab install-all install-neighbours install-neutron install-cinder install-ansible install-tempest install-fuzz install-others cloud-packages lab-packages tests-packages install-libvirt install-guests libvirt-packages images-packages

up: $(if $(filter libvirt,$(DRIVER)),install-guests,install-run $(if $(PROCESSES),cloud-packages))
	@.venv/bin/skep up $(if $(PROCESSES)$(filter libvirt,$(DRIVER)),--processes) $(if $(DRIVER),--driver $(DRIVER)) $(UP_ARGS)

demo: install-run
	@.venv/bin/skep demo $(DEMO_ARGS)

bench: install-run
	@.venv/bin/skep bench build $(BENCH_ARGS)

chaos: install-lab $(if $(filter processes,$(DEPLOYMENT)),lab-packages)
	@.venv/bin/python -m skep_lab.chaos --deployment $(DEPLOYMENT) --builds $(BUILDS) --duration $(DURATION) \
		$(if $(SEED),--seed $(SEED)) $(if $(FROM_RELEASE),--from-release $(FROM_RELEASE)) $(if $(NO_RESTORE),--no-restore)

soak: install-lab lab-packages
	@.venv/bin/python -m skep_lab.soak $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

tempest: install-lab install-tempest $(if $(filter libvirt,$(DRIVER)),install-libvirt lab-packages) $(if $(OWN),,install-neighbours $(if $(BARE),,install-neutron install-cinder tests-packages))
	@.venv/bin/python -m skep_lab.tempest $(if $(BARE),--bare) $(if $(OWN),--own) \
		$(if $(DRIVER),--driver $(DRIVER)) $(TEMPEST_ARGS)

fuzz: install-lab install-fuzz
	@.venv/bin/python -m skep_lab.fuzz --cases $(CASES) $(if $(SEED),--seed $(SEED)) $(FUZZ_ARGS)

test: install-all install-others install-libvirt tests-packages
	$(PYTEST) $(TEST_ARGS) tests

test-slow: test-everywhere

test-everywhere: install-all install-others install-libvirt install-neutron install-cinder tests-packages images-packages
	EVERYWHERE=1 $(PYTEST) -m sampled --timeout 7200 $(TEST_ARGS) tests

# What all walks of crashes have, not only a sample. Two files have nearly all of it: their cases are shared out.
crash: install-all install-others $(if $(filter libvirt,$(DRIVER)),install-libvirt) tests-packages
	EVERYWHERE=1 $(PYTEST) --dist load -m crash --timeout 7200 $(TEST_ARGS) \
		$(if $(filter libvirt,$(DRIVER)),tests/crash/test_walk*_on_libvirt.py,tests)

check: install-all lab-packages
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	@$(MAKE) --no-print-directory --jobs=2 types fast-tests

# Beside the tests, which wait now and then; said in one piece when it has ended.
types:
	@said=$$(.venv/bin/mypy 2>&1); status=$$?; printf '\n%s\n' "$$said"; exit $$status

# The import rules are among them (tests/architecture/test_import_rules.py).
fast-tests:
	QUICK=1 $(PYTEST) $(TEST_ARGS) $(FAST_TESTS)

format: install-all
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

lock:
	@scripts/lock $(LOCK_ARGS)

cloud-packages lab-packages tests-packages libvirt-packages images-packages:
	@scripts/system-packages $(@:-packages=)

install-run:
	@scripts/bootstrap run

install-lab:
	@scripts/bootstrap lab

install-all:
	@scripts/bootstrap all

install-neighbours:
	@scripts/bootstrap neighbours

install-neutron:
	@scripts/bootstrap neutron

install-cinder:
	@scripts/bootstrap cinder

install-ansible:
	@scripts/bootstrap ansible

install-fuzz:
	@scripts/bootstrap fuzz

# Into the same environment as the product, so after it.
install-libvirt: install-all libvirt-packages
	@scripts/bootstrap libvirt

# What a cloud with real guests runs on. Where packages are missing and may not be installed, it stops and says which.
install-guests:
	@scripts/system-packages guests
	@scripts/bootstrap run
	@scripts/bootstrap libvirt

install-tempest:
	@scripts/bootstrap tempest

# The programs of others that tests run beside a cloud.
install-others: install-neighbours install-ansible install-tempest install-fuzz
