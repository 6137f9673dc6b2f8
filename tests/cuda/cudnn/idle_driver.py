#!/usr/bin/env python3
"""Write a CUDA driver that does nothing, so that cuDNN builds plans without one.

  idle_driver.py NM STUB OUT    # STUB is the toolkit's stubs/libcuda.so

Every function of the stub that is not written out below returns 0, which is
success. cuInit fails, so that nobody takes it for a machine with a GPU. Nothing
that a plan launches would run.
"""
import subprocess
import sys

OWN = r"""
/* Without a GPU. */
int cuInit(unsigned flags) { (void)flags; return 100; }
int cuDriverGetVersion(int* version) { *version = CUDA_VERSION; return 0; }
/* Handles that are not null. */
static int Give(void** handle) { *handle = handle; return 0; }
int cuLibraryLoadData(void** library) { return Give(library); }
int cuLibraryGetKernel(void** kernel) { return Give(kernel); }
int cuKernelGetFunction(void** function) { return Give(function); }
int cuGetProcAddress_v2(const char* name, void** function, int version,
                        uint64_t flags, int* found) {
  (void)version;
  (void)flags;
  *function = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
  if (found) *found = *function ? 0 : 1;
  return *function ? 0 : 500;
}
int cuGetProcAddress(const char* name, void** function, int version,
                     uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, 0);
}
"""


def functions(nm, stub):
    lines = subprocess.run([nm, "-D", "--defined-only", stub], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    return sorted({parts[2].split("@")[0] for parts in map(str.split, lines)
                   if len(parts) == 3 and parts[1] == "T"})


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: idle_driver.py NM STUB OUT")
    nm, stub, out = sys.argv[1:]
    idle = [name for name in functions(nm, stub)
            if f"int {name}(" not in OWN and name.startswith("cu")]
    if not idle:
        sys.exit(f"idle_driver.py: {stub} has no functions")
    with open(out, "w", encoding="utf-8") as file:
        file.write("#include <dlfcn.h>\n#include <stdint.h>\n"
                   "#define CUDA_VERSION 13000\n" + OWN)
        file.writelines(f"int {name}(void) {{ return 0; }}\n" for name in idle)


if __name__ == "__main__":
    main()
