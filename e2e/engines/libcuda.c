/* Stands for NVIDIA's driver library where there is none: engines built for CUDA link it, and learn here that there is no
 * device. Results as in cuda.h: 100 is CUDA_ERROR_NO_DEVICE, 500 CUDA_ERROR_NOT_FOUND. */

#define NO_DEVICE 100
#define NOT_FOUND 500

int cuInit(unsigned flags) { (void)flags; return NO_DEVICE; }
int cuDeviceGetCount(int *count) { *count = 0; return NO_DEVICE; }
int cuDriverGetVersion(int *version) { *version = 0; return NO_DEVICE; }
int cuGetErrorName(int error, const char **name) { (void)error; *name = "CUDA_ERROR_NO_DEVICE"; return 0; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "no device"; return 0; }
int cuGetProcAddress_v2(void) { return NOT_FOUND; }
int cuPointerGetAttribute(void *to, int attribute, unsigned long long address)
{
    (void)to; (void)attribute; (void)address;
    return NO_DEVICE;
}
