# Becomes a user, then runs a command. Needs root, or `sudo` without a password, unless it is that user already.
#
# sh -c SCRIPT sh USER HOME COMMAND...
#   USER  a name, or a number: its group is that of its passwd entry, else the same number
#   HOME  `own`: HOME is the user's home; `kept`: it stays
#
# What fails before the command begins is told on stderr in one line that begins with `sandbox-bench:`.
user=$1 home=$2
shift 2

refuse() {
    echo "sandbox-bench: $1" >&2
    exit 125
}

[ -n "$user" ] || refuse "no such user: an empty name"

# Whom others take this process for. The file is opened by this very shell.
while read -r key real self rest; do
    [ "$key" = Uid: ] && break
done </proc/self/status

name= uid= gid= dir=/
while IFS=: read -r entry password id group comment place shell || [ -n "$entry" ]; do
    if [ "$entry" = "$user" ] || [ "$id" = "$user" ]; then
        name=$entry uid=$id gid=$group dir=${place:-/}
        break
    fi
done 2>/dev/null </etc/passwd
if [ -z "$uid" ]; then
    case $user in *[!0-9]*) refuse "no such user: $user" ;; esac
    uid=$user gid=$user
fi
[ "$home" = kept ] || export HOME="$dir"

# Replaces this shell.
as_root() {
    [ "$self" = 0 ] && exec "$@"
    exec sudo -n -E env "PATH=$PATH" "HOME=$HOME" "$@"
}

# Which of these an image has, and which a sandbox allows, only a trial shows.
works() { (as_root "$@" /bin/sh -c :) >/dev/null 2>&1 </dev/null; }

[ "$self" = "$uid" ] && exec "$@"
[ "$self" = 0 ] || works || refuse "root is needed to become $user, and sudo does not give it"
[ "$uid" = 0 ] && as_root "$@"
[ -n "$name" ] && groups=--init-groups || groups=--clear-groups
works setpriv --reuid "$uid" --regid "$gid" $groups && as_root setpriv --reuid "$uid" --regid "$gid" $groups "$@"
if [ -n "$name" ]; then
    works chroot --userspec="$uid:$gid" / && as_root chroot --userspec="$uid:$gid" / "$@"
    works su -s /bin/sh -c ':' -- "$name" && as_root su -s /bin/sh -c 'exec "$@"' -- "$name" sh "$@"
else
    works chroot --userspec="$uid:$gid" --groups= / && as_root chroot --userspec="$uid:$gid" --groups= / "$@"
fi
refuse "no program here can become $user: it takes setpriv, chroot --userspec, or su"
