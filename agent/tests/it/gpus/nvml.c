/* A driver's library with three GPUs, as far as the agent asks: one is healthy, one is hot, older and says
   nonsense of its utilisation, one has fallen off the bus. Functions that are not here are not supported. */

#include <stdio.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, TIMEOUT = 10, LOST = 15 };
enum { HEALTHY = 1, HOT = 2, GONE = 3 };

/* A handle is the GPU's number among them, as a pointer. */
typedef void *device_t;
struct utilization { unsigned gpu, memory; };
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct event { device_t device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

static long number(device_t device) { return (long)device; }

static int report(device_t device, void *to, const void *what, size_t size) {
    if (number(device) == GONE) return LOST;
    memcpy(to, what, size);
    return OK;
}

static int report_number(device_t device, unsigned *to, unsigned healthy, unsigned hot) {
    unsigned value = number(device) == HOT ? hot : healthy;
    return report(device, to, &value, sizeof value);
}

int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device) {
    *device = (device_t)(long)(index + 1);
    return OK;
}

int nvmlDeviceGetUUID(device_t device, char *to, unsigned size) {
    snprintf(to, size, "GPU-0000000%ld", number(device));
    return OK;
}

int nvmlDeviceGetName(device_t device, char *to, unsigned size) {
    snprintf(to, size, number(device) == HOT ? "Old One" : "New One");
    return OK;
}

int nvmlDeviceGetMinorNumber(device_t device, unsigned *minor) { *minor = number(device) + 6; return OK; }

int nvmlDeviceGetPciInfo_v3(device_t device, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:0%ld:00.0", number(device));
    return OK;
}

int nvmlDeviceGetUtilizationRates(device_t device, struct utilization *to) {
    struct utilization rates = {number(device) == HOT ? -1u : 37, 12};
    return report(device, to, &rates, sizeof rates);
}

int nvmlDeviceGetMemoryInfo_v2(device_t device, struct memory *to) {
    struct memory memory = {to->version, 80ull << 30, 1ull << 30, 48ull << 30, 31ull << 30};
    if (to->version != (sizeof memory | 2u << 24)) return INVALID;
    return report(device, to, &memory, sizeof memory);
}

int nvmlDeviceGetPowerUsage(device_t device, unsigned *mw) { return report_number(device, mw, 312500, 98000); }
int nvmlDeviceGetTemperature(device_t device, int sensor, unsigned *c) {
    return sensor == 0 ? report_number(device, c, 61, 93) : INVALID;
}
int nvmlDeviceGetClockInfo(device_t device, int clock, unsigned *mhz) {
    return clock == 1 ? report_number(device, mhz, 1980, 700) : report_number(device, mhz, 2619, 1593);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device_t device, unsigned long long *to) {
    unsigned long long reasons = number(device) == HOT ? 0x48 : 0x4;
    return report(device, to, &reasons, sizeof reasons);
}

int nvmlDeviceGetTotalEccErrors(device_t device, int uncorrected, int aggregate, unsigned long long *to) {
    unsigned long long count = uncorrected ? 0 : 2;
    if (number(device) == HOT || aggregate) return NOT_SUPPORTED;
    return report(device, to, &count, sizeof count);
}

/* Two links are up. */
int nvmlDeviceGetNvLinkState(device_t device, unsigned link, int *up) {
    if (number(device) == HOT || link > 17) return NOT_SUPPORTED;
    *up = link < 2;
    return OK;
}

int nvmlDeviceGetNvLinkErrorCounter(device_t device, unsigned link, int counter, unsigned long long *to) {
    unsigned long long count = link + 1;
    return counter == 0 ? report(device, to, &count, sizeof count) : NOT_SUPPORTED;
}

int nvmlEventSetCreate(void **set) { *set = (void *)1; return OK; }
int nvmlEventSetFree(void *set) { return set ? OK : INVALID; }

int nvmlDeviceRegisterEvents(device_t device, unsigned long long types, void *set) {
    return number(device) == HEALTHY && types == 8 && set ? OK : NOT_SUPPORTED;
}

/* An Xid of a program comes once. */
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds) {
    static int reported = 0;
    if (!set || milliseconds || reported++) return TIMEOUT;
    *event = (struct event){(device_t)HEALTHY, 8, 43, 0, 0};
    return OK;
}
