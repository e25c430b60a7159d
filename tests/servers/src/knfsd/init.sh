#!/bin/busybox sh
# First process of the guest: drivers, network and disk, then the port mapper and the mount daemon.
# The kernel's NFS threads are started from outside, through the shell on port 2323.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /run
while read -r module; do insmod "/modules/$module"; done </modules/order
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
mkdir -p /export /run/rpcbind /run/nfs
mount -t ext4 /dev/vda /export
mount -t nfsd none /proc/fs/nfsd
chmod 1777 /export
rpcbind -w
: >/var/lib/nfs/etab
: >/var/lib/nfs/rmtab
rpc.mountd -N 4 -p 20048
# One shell for each connection; the other port unpacks an archive below the export.
nc -ll -p 2323 -e /bin/sh &
nc -ll -p 2324 -e /bin/tar x -p -C /export &
echo "guest is ready"
while :; do sleep 1000; done
