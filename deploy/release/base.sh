#!/bin/sh
# Write a tar file with the root of a small Debian: the C and C++ libraries, a shell, CA certificates, and no package manager.
#   base.sh FILE        from the packages of base.packages, and no other ones; the mirror is that of RMQTX_MIRROR
#   base.sh --list      print what base.packages would contain today: newest packages, checked by their archive's signature (mmdebstrap)
set -eu
umask 022
from=$(dirname "$(readlink -f "$0")")
if [ "$1" = --list ]; then
    echo "# The packages of the image's root (base.sh --list), in Debian at $(date -u +%Y%m%dT%H%M%SZ)."
    # The last ones are for scripts of packages, and no script runs.
    mmdebstrap --quiet --variant=extract --format=null \
        --include=base-files,libc6,libgcc-s1,libstdc++6,busybox,ca-certificates,netbase,tzdata \
        --extract-hook='for file in "$1"/var/cache/apt/archives/*.deb; do
            name=$(dpkg-deb -f "$file" Package) version=$(dpkg-deb -f "$file" Version) sum=$(sha256sum "$file" | cut -d" " -f1)
            APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-cache show "$name=$version" | sed -n "s/^Filename: /$sum  /p" | head -1
        done | sed "s,  pool/updates/,  debian-security/pool/updates/,; s,  pool/,  debian/pool/," |
            grep -Ev "/(debconf|libssl3|mawk|openssl)_" >&3' \
        bookworm /dev/null ${RMQTX_MIRROR:+"$RMQTX_MIRROR"} 3>&1
    exit
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
python3 "$from/debian.py" "$from/base.packages" "$scratch/packages"
mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/var/lib/dpkg/status.d"
for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done
for package in "$scratch"/packages/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -xf - -C "$root" --keep-directory-symlink --no-same-owner
    # Where scanners for known vulnerabilities look for packages in an image without a package manager.
    dpkg-deb -f "$package" >"$root/var/lib/dpkg/status.d/$(dpkg-deb -f "$package" Package)"
done
cd "$root"
find usr/share/doc \( -type f -o -type l \) ! -name copyright -delete
find usr/share/doc -type d -empty -delete
rm -rf usr/lib/*/gconv usr/share/zoneinfo/right usr/share/man usr/share/locale
for name in sh cat cp dirname env grep gzip head ls mkdir mktemp mv readlink rm sed sort tail tar wc; do ln -s busybox "bin/$name"; done
mkdir -p etc/ssl/certs
cat usr/share/ca-certificates/mozilla/*.crt >etc/ssl/certs/ca-certificates.crt
printf 'root:x:0:0::/:/bin/sh\nrmqtx:x:3000:3000::/tmp:/bin/sh\n' >etc/passwd
printf 'root:x:0:\nrmqtx:x:3000:\n' >etc/group
cd "$OLDPWD"
tar --format=gnu --sort=name --mtime=@"$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$root" -cf "$1" .
