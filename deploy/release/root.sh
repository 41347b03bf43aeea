#!/bin/sh
# Lay out what the Debian package and the RPM install: root.sh TREE ROOT UNITS, the last the directory of systemd's units.
set -eu
tree=$1 root=$2 units=$root/$3
from=$(dirname "$0")/../..
rm -rf "$root"
umask 022
mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/etc/rmqtx" "$units"
cp -a "$tree" "$root/usr/lib/rmqtx"
ln -s ../lib/rmqtx/bin/rmqtx "$root/usr/bin/rmqtx"
install -m 644 "$from/deploy/release/config.toml" "$root/etc/rmqtx/config.toml"
for unit in "$from"/deploy/systemd/*; do
    # The package's own path and user; the store is that of the configuration file.
    sed -e '/^# /d' -e 's|/usr/local/bin/rmqtx \([a-z]*\) /data/rocketmq/store|/usr/bin/rmqtx \1|' \
        -e 's|^ExecStart=|Environment=RMQTX_CONFIG=/etc/rmqtx/config.toml\n&|' "$unit" >"$units/${unit##*/}"
done
for page in "$from"/man/*; do
    section=${page##*.}
    mkdir -p "$root/usr/share/man/man$section"
    gzip -9nc "$page" >"$root/usr/share/man/man$section/${page##*/}.gz"
done
for file in bash:bash-completion/completions/rmqtx zsh:zsh/vendor-completions/_rmqtx fish:fish/vendor_completions.d/rmqtx.fish; do
    mkdir -p "$(dirname "$root/usr/share/${file#*:}")"
    _RMQTX_COMPLETE=source_${file%%:*} "$tree/bin/rmqtx" | sed '/./,$!d' >"$root/usr/share/${file#*:}"
done
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
