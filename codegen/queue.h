/* A queue of bytes for a second thread, first in, first out (queue.c). */
#pragma once

#include "ir/base/base.h"

/* Processes bytes on the queue's thread. After false the queue processes nothing more. The function and the caller of
 * queue_give must not access the same data between queue_give and queue_wait or queue_end. */
typedef bool queue_take(void *user, const void *data, size_t size);
struct queue;

/* Starts the thread. If the system has none to give, queue_give calls take itself. */
struct queue *queue_begin(struct arena *, queue_take *take, void *user);
/* Appends bytes. The caller must not change more than QUEUE_COPY bytes until its next call with so many returns, or
 * queue_wait; so two buffers in alternation are enough. false: an earlier call of take failed. */
enum { QUEUE_COPY = 64 };
bool queue_give(struct queue *, const void *data, size_t size);
bool queue_wait(struct queue *); /* waits until all bytes are processed; false: take failed */
bool queue_end(struct queue *);  /* the same, then ends the thread; may be called again */
