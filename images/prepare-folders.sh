#!/bin/sh
# Gives the state folder to the user that the node runs as, and lets that user work in the jobs folder.
# Runs once before the node, as root, with no network. usage: prepare-folders.sh UID GID
set -eu
uid=$1 gid=$2

if [ "$(stat -c %u /state)" != "$uid" ]; then
  chown -R -h "$uid:$gid" /state
fi
chmod 0700 /state

# Jobs belong to whoever drops them. Where the node runs as somebody else, both get the right to everything in
# there, now and later; links are not followed.
[ -d /jobs ] || exit 0
owner=$(stat -c %u /jobs)
if [ "$owner" != "$uid" ]; then
  setfacl -R -P -m "u:$uid:rwX,d:u:$uid:rwX,d:u:$owner:rwX" /jobs 2>/dev/null ||
    echo "the file system of jobs/ has no access lists: if the node cannot write there, set DAISYCHAIN_UID=$owner in .env" >&2
fi
