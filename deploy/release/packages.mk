# What a release has beside `make dist`. All of it contains one directory: Python, rmqtx and the packages of one lock.
RELEASE := $(CACHE)/release
TREE := $(RELEASE)/tree
FROM := deploy/release
HEAD := $(shell git rev-parse --git-path logs/HEAD 2>/dev/null)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# 1.0.0rc1 comes before 1.0.0.
PACKAGE_VERSION := $(shell echo $(VERSION) | sed 's/\(a\|b\|rc\)\([0-9]*\)$$/~\1\2/')
MAINTAINER ?= The maintainers of rmqtx <rmqtx@localhost>
dist/% $(RELEASE)/%: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
SAME_TAR = tar --format=gnu --sort=name --mtime=@$$SOURCE_DATE_EPOCH --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX
SUMS = cd dist && sha256sum $$(find * -prune -type f ! -name SHA256SUMS | sort) > SHA256SUMS && ls -l $(notdir $@)

$(RELEASE)/tree.done: $(HEAD) $(FROM)/tree.py $(FROM)/build.py
	@test dist/pylock.host.toml -nt $(HEAD) || $(MAKE) --no-print-directory dist
	@mkdir -p $(RELEASE)
	@$(PYTHON) $(FROM)/tree.py dist $(TREE)
	@touch $@

ONEFILE := dist/rmqtx-$(VERSION)-linux-x86_64
.PHONY: onefile
onefile: $(ONEFILE) ## one file with Python and all packages inside, for hosts without Python
$(ONEFILE): $(RELEASE)/tree.done $(FROM)/onefile.sh
	@$(SAME_TAR) -C $(TREE) -cf - . | gzip -6n > $(RELEASE)/payload
	@sed -e s/@SUM@/$(VERSION)-$$(sha256sum $(RELEASE)/payload | cut -c1-12)/ -e s/@LINES@/$$(($$(wc -l < $(FROM)/onefile.sh) + 1))/ \
		$(FROM)/onefile.sh | cat - $(RELEASE)/payload > $@
	@chmod 755 $@ && rm $(RELEASE)/payload
	@$(SUMS)

DEB := dist/rmqtx_$(PACKAGE_VERSION)_amd64.deb
.PHONY: deb
deb: $(DEB) ## a Debian package (dpkg-deb), checked by lintian where it is installed
$(DEB): $(RELEASE)/tree.done $(FROM)/root.sh $(FROM)/config.toml $(wildcard $(FROM)/deb/* deploy/systemd/*)
	@$(FROM)/root.sh $(TREE) $(RELEASE)/deb lib/systemd/system
	@install -d -m 755 $(RELEASE)/deb/DEBIAN $(RELEASE)/deb/usr/share/doc $(RELEASE)/deb/usr/share/doc/rmqtx $(RELEASE)/deb/usr/share/lintian \
		$(RELEASE)/deb/usr/share/lintian/overrides
	@install -m 644 $(FROM)/deb/copyright $(RELEASE)/deb/usr/share/doc/rmqtx/
	@install -m 644 $(FROM)/deb/lintian-overrides $(RELEASE)/deb/usr/share/lintian/overrides/rmqtx
	@printf 'rmqtx (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of this version.\n\n -- %s  %s\n' '$(PACKAGE_VERSION)' \
		'$(MAINTAINER)' "$$(LC_ALL=C date -uRd @$$SOURCE_DATE_EPOCH)" | gzip -9n > $(RELEASE)/deb/usr/share/doc/rmqtx/changelog.gz
	@size=$$(cd $(RELEASE)/deb && find usr etc lib -printf '%y %s\n' | awk '{ all += $$1 == "f" ? int(($$2 + 1023) / 1024) : 1 } END { print all }'); \
		sed -e 's/@VERSION@/$(PACKAGE_VERSION)/' -e 's/@MAINTAINER@/$(MAINTAINER)/' -e "s/@SIZE@/$$size/" $(FROM)/deb/control > $(RELEASE)/deb/DEBIAN/control
	@install -m 644 $(FROM)/deb/conffiles $(RELEASE)/deb/DEBIAN/
	@install -m 755 $(FROM)/deb/postinst $(FROM)/deb/prerm $(FROM)/deb/postrm $(RELEASE)/deb/DEBIAN/
	@cd $(RELEASE)/deb && find usr etc lib -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums
	@chmod 644 $(RELEASE)/deb/DEBIAN/control $(RELEASE)/deb/DEBIAN/md5sums $(RELEASE)/deb/usr/share/doc/rmqtx/changelog.gz
	@dpkg-deb --root-owner-group -Zxz -z2 --build $(RELEASE)/deb $@ > /dev/null
	@! command -v lintian > /dev/null || lintian --fail-on error,warning $@
	@$(SUMS)

RPM := dist/rmqtx-$(PACKAGE_VERSION)-1.x86_64.rpm
.PHONY: rpm
rpm: $(RPM) ## an RPM (rpmbuild), checked by rpmlint where it is installed
$(RPM): $(RELEASE)/tree.done $(FROM)/root.sh $(FROM)/config.toml $(wildcard $(FROM)/rpm/* deploy/systemd/*)
	@$(FROM)/root.sh $(TREE) $(RELEASE)/rpm usr/lib/systemd/system
	@rpmbuild -bb --quiet --define "_topdir $(abspath $(RELEASE))/rpmbuild" --define "_rpmdir $(abspath $(RELEASE))" \
		--define "_rpmfilename $(notdir $@)" --define "version_ $(PACKAGE_VERSION)" --define "staged $(abspath $(RELEASE))/rpm" \
		--target x86_64 $(FROM)/rpm/rmqtx.spec
	@mv $(RELEASE)/$(notdir $@) $@
	@! command -v rpmlint > /dev/null || rpmlint --config $(FROM)/rpm/rpmlint.toml $@
	@$(SUMS)

# BASE is an image by its digest, NAME@sha256:...; without it a root of Debian is made from the packages of base.packages.
IMAGE := dist/rmqtx-$(VERSION)-image.tar
.PHONY: image
image: $(IMAGE) ## a container image (buildah); BASE=NAME@sha256:DIGEST, else on a small root of Debian
$(IMAGE): $(RELEASE)/tree.done deploy/container/Dockerfile $(FROM)/base.sh $(FROM)/base.packages
	@case "$(BASE)" in '' | *@sha256:*) ;; *) echo "make: BASE is an image by its digest: NAME@sha256:DIGEST" >&2; exit 2;; esac
	@rm -f $@ $(RELEASE)/base.tar
	@if test -n "$(BASE)"; then tar -cf $(RELEASE)/base.tar -T /dev/null; else $(FROM)/base.sh $(RELEASE)/base.tar; fi
	@buildah build --quiet --timestamp $$SOURCE_DATE_EPOCH $${BASE:+--build-arg BASE=$(BASE)} \
		-f deploy/container/Dockerfile --format docker -t docker-archive:$@:rmqtx:$(VERSION) $(RELEASE) > /dev/null
	@$(PYTHON) $(FROM)/same_image.py $@
	@$(SUMS)

CHART := dist/rmqtx-chart-$(VERSION).tgz
.PHONY: chart
chart: $(CHART) ## the Helm chart of deploy/chart (helm), checked by helm lint
$(CHART): $(HEAD) $(wildcard deploy/chart/* deploy/chart/templates/*)
	@helm lint --quiet --strict --set check.enabled=true,check.store.claim=store \
		--set audit.enabled=true,audit.store.claim=store,audit.output=reports deploy/chart
	@mkdir -p dist
	@$(SAME_TAR) --transform 's,^\./,rmqtx/,' -C deploy/chart -cf - ./Chart.yaml ./values.yaml ./values.schema.json ./templates | gzip -9n > $@
	@$(SUMS)
