#!/bin/sh
# Build the Python of one file, packages and image for glibc 2.28, where uv cannot bring one: interpreter.sh DIRECTORY (as root).
# Debian's source of Python is compiled in a root of Debian 11 (debootstrap); libraries that it needs are copied beside it. Then:
# make onefile RMQTX_INTERPRETER=DIRECTORY. The mirror is that of RMQTX_MIRROR, else that of debootstrap.
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase \
    --include=gcc,libc6-dev,make,patchelf,dpkg-dev,xz-utils,zlib1g-dev,libbz2-dev,liblzma-dev,libffi-dev,libsqlite3-dev,libreadline-dev,libssl-dev,tcl \
    bullseye "$root" ${RMQTX_MIRROR:+"$RMQTX_MIRROR"}
cp /etc/resolv.conf "$root/etc/"
cp /usr/share/keyrings/debian-archive-keyring.gpg "$root/etc/apt/trusted.gpg.d/"
sed 's/^deb \(.*\) bullseye .*/deb-src \1 trixie main\ndeb-src \1 bullseye main/' "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/source.list"
chroot "$root" sh -eu <<'BUILD'
cd /usr/src
apt-get -qq update
apt-get -qq source python3.13 sqlite3/bullseye
# The later versions of these functions set errno in another way, no more; sem_clockwait is that of glibc 2.30.
{
    echo '#ifndef __ASSEMBLER__'
    for name in pow exp exp2 log log2; do echo "__asm__(\".symver $name,$name@GLIBC_2.2.5\");"; done
    echo '#endif'
} >/usr/src/old.h
cd python3.13-*
./configure --quiet --prefix=/usr/src/python --without-ensurepip --disable-test-modules \
    CFLAGS='-O2 -g0 -include /usr/src/old.h' ac_cv_func_sem_clockwait=no
make -s -j"$(nproc)"
make -s install
cd /usr/src/python/lib
for file in python3.13/lib-dynload/*.so; do
    ldd $file | awk '/=>/ {print $3}' | grep -Ev '/(libc|libm|libdl|libpthread|librt|libutil)\.so' | xargs -r cp -Lut .
    patchelf --set-rpath '$ORIGIN/../..' $file
done
cd /usr/src/sqlite3-*
./configure --quiet --disable-tcl --disable-static --disable-readline CFLAGS='-O2 -include /usr/src/old.h'
make -s libsqlite3.la
cd /usr/src/python/lib
cp -L /usr/src/sqlite3-*/.libs/libsqlite3.so.0 .
for file in lib*.so*; do patchelf --set-rpath '$ORIGIN' $file; done
BUILD
rm -rf "$1"
cp -a "$root/usr/src/python" "$1"
