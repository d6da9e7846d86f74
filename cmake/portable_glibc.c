// What glibc 2.34 has not yet and the compiler's own libraries ask for, so that a portable binary starts there. Linked in it
// alone, ahead of glibc's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

// glibc's stderr for archives that were compiled for programs (Portable.cmake).
__attribute__((visibility("hidden"))) FILE* mxt_portable_stderr;
__attribute__((constructor(101))) static void take_stderr(void) { mxt_portable_stderr = stderr; }

// std::random_device, glibc 2.36.
uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) abort();
  return value;
}

// GCC's unwinder, glibc 2.35: the same answer from dl_iterate_phdr.
struct search {
  ElfW(Addr) address;
  struct dl_find_object* result;
};

static int look(struct dl_phdr_info* object, size_t size, void* data) {
  struct search* s = data;
  const ElfW(Phdr) * frames = 0, *holds = 0;
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const ElfW(Addr) begin = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && s->address >= begin && s->address < begin + part->p_memsz) holds = part;
    if (part->p_type == PT_GNU_EH_FRAME) frames = part;
  }
  if (!holds || !frames) return 0;
  const ElfW(Addr) begin = object->dlpi_addr + holds->p_vaddr;
  *s->result = (struct dl_find_object){.dlfo_map_start = (void*)begin,
                                       .dlfo_map_end = (void*)(begin + holds->p_memsz),
                                       .dlfo_eh_frame = (void*)(object->dlpi_addr + frames->p_vaddr)};
  return 1;
}

int _dl_find_object(void* address, struct dl_find_object* result) {
  struct search s = {(ElfW(Addr))address, result};
  return dl_iterate_phdr(look, &s) ? 0 : -1;
}
