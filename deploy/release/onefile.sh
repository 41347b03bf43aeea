#!/bin/sh
# rmqtx with Python and all its packages in one file. The first run unpacks them into RMQTX_UNPACKED, by default
# ~/.cache/rmqtx-onefile; later runs start from there. Needs sh, tail, gzip and tar of the host. To remove: this file and that directory.
set -eu
umask 077
into=${RMQTX_UNPACKED:-${XDG_CACHE_HOME:-${HOME:?is not set: name a directory in RMQTX_UNPACKED}/.cache}/rmqtx-onefile}
tree=$into/@SUM@
if [ ! -e "$tree" ]; then
    mkdir -p "$into"
    new=$(mktemp -d "$into/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    tail -n +@LINES@ "$0" | gzip -dc | tar -xf - -C "$new" || { echo "rmqtx: could not unpack $0 into $into" >&2; exit 10; }
    mv -T "$new" "$tree" 2>/dev/null || [ -e "$tree" ] # another process was faster
    rm -rf "$new"
    trap - EXIT INT TERM HUP
fi
[ -O "$tree" ] || { echo "rmqtx: $tree belongs to another user; name another directory in RMQTX_UNPACKED" >&2; exit 10; }
exec "$tree/bin/python3" -I "$tree/bin/rmqtx" "$@"
