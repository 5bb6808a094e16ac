#!/bin/busybox sh
# The first and only script of a virtual host. The kernel's command line names the host and its address;
# commands come on the second serial port, a line each: `number command`. What they print goes back as
# `number>line`, their end as `number=code`.
/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin /proc /sys /dev /tmp
/bin/busybox --install -s
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
for module in $(cat /modules/order); do
    insmod "/modules/$module.ko" || echo "module $module does not load"
done
ulimit -l unlimited
# All NICs are on one Ethernet; each answers for its own address only.
echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
echo 2 >/proc/sys/net/ipv4/conf/all/arp_announce
# No other host has these addresses: without the wait for an objection they can be found at once.
for wait in /proc/sys/net/ipv6/conf/*/dad_transmits; do echo 0 >"$wait"; done
for word in $(cat /proc/cmdline); do
    case $word in
        host=*) hostname "${word#host=}" ;;
        nic=*)
            nic=${word#nic=}
            ip address add "${nic#*:}/24" dev "${nic%%:*}"
            ip link set "${nic%%:*}" mtu 4200 up ;;
    esac
done
ip link set lo up

exec </dev/ttyS1 >/dev/ttyS1 2>&1
stty raw -echo
echo "ready"
answer() {
    { sh -c "$2" 2>&1 </dev/null; echo $? >"/tmp/code.$1"; } |
        while IFS= read -r line || [ -n "$line" ]; do echo "$1>$line"; done
    echo "$1=$(cat "/tmp/code.$1")"
}
# The end of a child interrupts `read` and loses what it has of a line. So the reader has no children of
# its own: commands are left to the first process, which waits for the reader.
(
    while read -r number command; do
        (answer "$number" "$command" &)
    done
)
poweroff -f
