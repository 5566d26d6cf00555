/* Bytes that a second thread takes in the order in which they are given (queue.c). */
#ifndef MCC_CODEGEN_QUEUE_H
#define MCC_CODEGEN_QUEUE_H

#include "ir/base/base.h"

/* Takes bytes, on the queue's thread; false: failed, nothing more is taken. It must not touch what the giver touches
 * before queue_wait or queue_end. */
typedef bool queue_take(void *user, const void *data, size_t size);
struct queue;

/* Where there is no thread to be had, queue_give does the work itself. */
struct queue *queue_begin(struct arena *, queue_take *take, void *user);
/* The bytes stay as they are until the next call for more than QUEUE_COPY bytes returns, or queue_wait: so a giver of
 * large pieces fills two buffers in turns. False: an earlier piece failed. */
enum { QUEUE_COPY = 64 };
bool queue_give(struct queue *, const void *data, size_t size);
bool queue_wait(struct queue *); /* until everything is taken; false: something failed */
bool queue_end(struct queue *);  /* the same, and the thread ends; may be called again */

#endif
