// Only nodes whose name ends as the pod's does, in C on wasi-libc. See README.md.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

IMPORT("k8s.io/scheduler", "currentPod") uint32_t current_pod(void *buf, uint32_t limit);
IMPORT("k8s.io/scheduler", "currentNodeName") uint32_t current_node_name(void *buf, uint32_t limit);
IMPORT("k8s.io/scheduler", "result.status_reason") void status_reason(const void *buf, uint32_t len);
IMPORT("k8s.io/klog", "logs")
void logs(int32_t severity, const void *msg, uint32_t msg_len, const void *kvs, uint32_t kvs_len);

enum { SUCCESS, ERROR, UNSCHEDULABLE };

static char last_of_pod;

// The last character of metadata.name: field 1 of field 1, each the first of its message.
static char last_of_name(const uint8_t *pod, uint32_t len) {
  uint32_t at = 0;
  for (int depth = 0; depth < 2; depth++) {
    if (at >= len || pod[at++] != 0x0a) return 0;
    uint32_t size = 0;
    for (int shift = 0; at < len; shift += 7) {
      uint8_t byte = pod[at++];
      size |= (uint32_t)(byte & 0x7f) << shift;
      if (!(byte & 0x80)) break;
    }
    if (depth == 1) return size && at + size <= len ? (char)pod[at + size - 1] : 0;
  }
  return 0;
}

EXPORT("prefilter") int32_t prefilter(void) {
  uint32_t len = current_pod(NULL, 0);
  uint8_t *pod = malloc(len);
  current_pod(pod, len);
  last_of_pod = last_of_name(pod, len);
  free(pod);
  char pair[] = {'l', 'a', 's', 't', 0, last_of_pod, 0};
  logs(0, "prefilter", 9, pair, sizeof pair);
  return last_of_pod ? SUCCESS : ERROR;
}

EXPORT("filter") int32_t filter(void) {
  char name[256], reason[320];
  uint32_t len = current_node_name(name, sizeof name);
  if (len && len <= sizeof name && name[len - 1] == last_of_pod) return SUCCESS;
  int n = snprintf(reason, sizeof reason, "%.*s doesn't end in %c", (int)len, name, last_of_pod);
  status_reason(reason, (uint32_t)n);
  return UNSCHEDULABLE;
}

EXPORT("postfilter") int64_t postfilter(void) { return UNSCHEDULABLE; }

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 128);
  puts("started");
  return 0;
}
