# Makes the root of a sandbox under the current directory: the host's /usr as the lower layer, little else.
set -e
mkdir root upper && cd root
mkdir -m 755 dev dev/shm etc home mnt opt proc root run srv usr var workspace
mkdir -m 1777 tmp var/tmp && chmod 1777 dev/shm
for link in bin sbin lib lib32 lib64 libx32; do
    if [ -L /$link ]; then cp -P /$link .; fi
done
for file in alternatives group ld.so.cache ld.so.conf nsswitch.conf passwd profile.d resolv.conf skel; do
    if [ -e /etc/$file ]; then cp -a -L /etc/$file etc/ 2>/dev/null || true; fi
done
for device in full null random tty urandom zero; do : > dev/$device; done
