# The first process of a sandbox: waits until its lifetime is over and then ends, which ends the sandbox. It reaps what
# commands leave behind. As process 1 it gets no signal from inside that it does not handle, and it handles none. Its
# sleeping child can be killed; then it sleeps again.
#
# sh -c SCRIPT sh SECONDS
trap '' HUP INT QUIT TERM
read -r now rest </proc/uptime
end=$((${now%.*} + $1))
while read -r now rest </proc/uptime && [ "${now%.*}" -lt "$end" ]; do
    sleep $((end - ${now%.*})) &
    wait
done
