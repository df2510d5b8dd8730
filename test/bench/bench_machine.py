"""What the machine did: idle share, CPU and memory of single processes, a line that describes it.

Everything comes from /proc; nothing here knows PostgreSQL.
"""
import os
import platform
import time


def processor_times():
    """(idle, all) of all processors since boot, in ticks; what waits for a disk counts as idle."""
    with open("/proc/stat", encoding="ascii") as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def idle_share(seconds=1.0):
    """The part of the processors' time that nobody uses, measured now."""
    idle, total = processor_times()
    time.sleep(seconds)
    later_idle, later_total = processor_times()
    return (later_idle - idle) / max(later_total - total, 1)


def settled_idle_share(enough, patience):
    """The same, tried again for so many seconds while it is not enough: what we did ourselves may still be settling."""
    deadline = time.monotonic() + patience
    while True:
        share = idle_share()
        if share >= enough or time.monotonic() >= deadline:
            return share


def cpu_seconds(pid):
    """User and system time of a process of one thread so far, to the nanosecond."""
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as stat:
        return int(stat.read().split()[0]) / 1e9


def private_megabytes(pid):
    """Memory of a process that it shares with nobody and that no file backs."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    return 0.0


def description():
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    with open("/proc/meminfo", encoding="ascii") as info:
        memory = int(info.readline().split()[1]) / 1024 / 1024
    return f"{model}, {os.cpu_count()} processors, {memory:.0f} GB, Linux {platform.release()}"
