#!/bin/sh
# Build the Python of one file, packages and image for glibc 2.28, where uv cannot bring one: interpreter.sh DIRECTORY (as root).
# Debian's sources of interpreter.sources are compiled in a root of Debian 11 (debootstrap); libraries that Python needs are copied
# beside it. Then: make onefile RMQTX_INTERPRETER=DIRECTORY. The mirror is that of RMQTX_MIRROR, else that of debootstrap.
# The last line is a digest of all that was built; the packages of the root, of which the bytes depend too, are those of interpreter.root.
set -eu
from=$(dirname "$(readlink -f "$0")")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022
debootstrap --variant=minbase \
    --include=gcc,libc6-dev,make,patchelf,dpkg-dev,xz-utils,zlib1g-dev,libbz2-dev,liblzma-dev,libffi-dev,libsqlite3-dev,libreadline-dev,libssl-dev,tcl \
    bullseye "$root" ${RMQTX_MIRROR:+"$RMQTX_MIRROR"}
chroot "$root" dpkg-query -W >"$root/packages"
if [ -e "$from/interpreter.root" ] && ! diff "$from/interpreter.root" "$root/packages" >&2; then
    echo "interpreter.sh: the root has other packages than interpreter.root: the bytes of this build differ from those of earlier ones" >&2
fi
python3 "$from/debian.py" "$from/interpreter.sources" "$root/usr/src"
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C TZ=UTC sh -eu <<'BUILD'
cd /usr/src
for name in *.dsc; do dpkg-source --no-check -x "$name" "${name%%_*}"; done
# The later versions of these functions set errno in another way, no more; sem_clockwait is that of glibc 2.30.
{
    echo '#ifndef __ASSEMBLER__'
    for name in pow exp exp2 log log2; do echo "__asm__(\".symver $name,$name@GLIBC_2.2.5\");"; done
    echo '#endif'
} >/usr/src/old.h
cd /usr/src/python3.13
# gcc takes the time that Python prints at its start from this.
export SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -STimestamp)
./configure --quiet --prefix=/usr/src/python --without-ensurepip --disable-test-modules \
    CFLAGS='-O2 -g0 -include /usr/src/old.h' ac_cv_func_sem_clockwait=no
make -s -j"$(nproc)"
make -s install
cd /usr/src/python/lib
for file in python3.13/lib-dynload/*.so; do
    ldd $file | awk '/=>/ {print $3}' | grep -Ev '/(libc|libm|libdl|libpthread|librt|libutil)\.so' | xargs -r cp -Lut .
    patchelf --set-rpath '$ORIGIN/../..' $file
done
cd /usr/src/sqlite3
./configure --quiet --disable-tcl --disable-static --disable-readline CFLAGS='-O2 -include /usr/src/old.h'
make -s libsqlite3.la
cd /usr/src/python/lib
cp -L /usr/src/sqlite3/.libs/libsqlite3.so.0 .
for file in lib*.so*; do patchelf --set-rpath '$ORIGIN' $file; done
find /usr/src/python -name __pycache__ -exec rm -r {} +
BUILD
rm -rf "$1"
cp -a "$root/usr/src/python" "$1"
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$1" -cf - . | sha256sum
