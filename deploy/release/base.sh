#!/bin/sh
# Write a tar file with the root of a small Debian: the C and C++ libraries, a shell, CA certificates, and no package manager.
# base.sh FILE; packages come from the mirror of RMQTX_MIRROR, else from that of mmdebstrap.
set -eu
mmdebstrap --quiet --variant=extract --format=tar \
    --include=base-files,libc6,libgcc-s1,libstdc++6,busybox,ca-certificates,netbase,tzdata \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/lib/*/gconv/*' --dpkgopt='path-exclude=/usr/share/zoneinfo/right/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --extract-hook='for name in sh cat cp dirname env grep gzip head ls mkdir mktemp mv readlink rm sed sort tail tar wc; do ln -sf busybox "$1/bin/$name"; done' \
    --extract-hook='mkdir -p "$1/etc/ssl/certs"; cat "$1"/usr/share/ca-certificates/mozilla/*.crt >"$1/etc/ssl/certs/ca-certificates.crt"' \
    --extract-hook='echo "root:x:0:0::/:/bin/sh
rmqtx:x:3000:3000::/tmp:/bin/sh" >"$1/etc/passwd"; echo "root:x:0:
rmqtx:x:3000:" >"$1/etc/group"' \
    bookworm "$1" ${RMQTX_MIRROR:+"$RMQTX_MIRROR"}
