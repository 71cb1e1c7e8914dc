# The first process of a sandbox: $1 its state directory, $2 its lifetime in seconds, $3 its working directory.
set -e
# /proc is still the host's, and so is the pid that it shows.
read -r pid rest < /proc/self/stat
cd "$1"
readlink /proc/self/ns/pid > namespace
echo "$pid" > pid
ip link set lo up 2>/dev/null || true
mkdir -p work
mount -t overlay -o "lowerdir=/usr,upperdir=$PWD/upper,workdir=$PWD/work" overlay root/usr
for device in full null random tty urandom zero; do mount --bind /dev/$device root/dev/$device; done
mount -t proc proc root/proc
mkdir -p "root$3"
# Only inside the new root: who enters before sees the host's.
exec chroot root sh -c 'echo ready; exec sleep "$0" > /dev/null' "$2"
