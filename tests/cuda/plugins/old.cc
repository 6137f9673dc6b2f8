// A backend, a device and NCCL's table of another interface version.
#include <cstdint>

extern "C" {
extern const int32_t skrull_backend_interface_version;
const int32_t skrull_backend_interface_version = -1;
void skrull_create_attention_backend(void*);
void skrull_create_attention_backend(void*) {}

extern const int32_t skrull_device_interface_version;
const int32_t skrull_device_interface_version = -1;
void skrull_create_device(const void*, void*);
void skrull_create_device(const void*, void*) {}

extern const int32_t skrull_nccl_interface_version;
const int32_t skrull_nccl_interface_version = -1;
void* skrull_nccl_table();
void* skrull_nccl_table() { return nullptr; }
}
