/* Preloaded into the operator: its wall clock is off by the seconds that the file $CLOCK_FILE names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int clock_gettime_fn(clockid_t, struct timespec *);

int clock_gettime(clockid_t clock, struct timespec *time) {
    static clock_gettime_fn *real;
    if (!real) real = (clock_gettime_fn *)dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, time);
    if (status != 0 || clock != CLOCK_REALTIME) return status;
    long seconds = 0;
    FILE *file = fopen(getenv("CLOCK_FILE"), "r");
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    time->tv_sec += seconds;
    return 0;
}
