// Package mcc calls compiled networks: what mcc_load.h and mcc.h do, with slices and errors.
//
//	model, err := mcc.Load("net.so")
//	run, err := model.NewContext()
//	x, y := mcc.NewTensor(1, 3, 224, 224), mcc.NewTensor(1, 1000)
//	copy(x.Data, picture)
//	err = run.Run([]*mcc.Tensor{x}, []*mcc.Tensor{y})
//
// A tensor's memory is C's, so that a run copies nothing and the garbage collector moves nothing; Free gives it back.
// Elements are float32 here. A model serves any number of goroutines, a context one run at a time.
package mcc

/*
#cgo CFLAGS: -std=gnu11 -O2 -I${SRCDIR}/../../../runtime
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "mcc_load.h"

// Go cannot call a pointer to a function.
static int context_new(mcc_lib *lib, mcc_ctx **ctx, mcc_error *e) { return lib->api->ctx_new(lib->model, NULL, 0, ctx, e); }
static void context_free(mcc_lib *lib, mcc_ctx *ctx) { lib->api->ctx_free(ctx); }
static int run(mcc_lib *lib, mcc_ctx *ctx, DLTensor **t, mcc_error *e)
{
	return lib->api->run(ctx, (const DLTensor *const *)t, t + lib->api->n_in, e);
}
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// Error is what a function of the table says: Code is one of MCC_E_*.
type Error struct {
	Code int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Text, e.Code) }

func failed(code C.int, e *C.mcc_error) error {
	if code == C.MCC_OK {
		return nil
	}
	return &Error{int(code), C.GoString(&e.text[0])}
}

// Tensor is compact, row-major memory of C with its shape.
type Tensor struct {
	Data  []float32
	Shape []int
	raw   *C.DLTensor
}

// NewTensor allocates zeros. It panics where an extent is negative or their product is too large, and where memory ends.
func NewTensor(shape ...int) *Tensor {
	n, extents := 1, append([]int(nil), shape...)
	for _, extent := range shape {
		if extent < 0 || extent > 0 && n > math.MaxInt32/extent {
			panic(fmt.Sprintf("mcc: a tensor of shape %v", shape))
		}
		n *= extent
	}
	head := C.size_t(unsafe.Sizeof(C.DLTensor{}))
	raw := (*C.DLTensor)(C.calloc(1, head+C.size_t(8*(len(shape)+1))))
	data := C.calloc(C.size_t(n)+1, 4)
	if raw == nil || data == nil {
		panic("mcc: out of memory")
	}
	raw.data = data
	raw.device.device_type = C.kDLCPU
	raw.ndim = C.int32_t(len(shape))
	raw.dtype = C.DLDataType{code: C.kDLFloat, bits: 32, lanes: 1}
	raw.shape = (*C.int64_t)(unsafe.Add(unsafe.Pointer(raw), head))
	for i, extent := range shape {
		unsafe.Slice(raw.shape, len(shape))[i] = C.int64_t(extent)
	}
	return &Tensor{unsafe.Slice((*float32)(data), n+1)[:n:n], extents, raw}
}

// Free gives the memory back; Data must not be used any more.
func (t *Tensor) Free() {
	if t.raw != nil {
		C.free(t.raw.data)
		C.free(unsafe.Pointer(t.raw))
	}
	t.raw, t.Data = nil, nil
}

// Model is a loaded and opened network.
type Model struct{ lib *C.mcc_lib }

// Load checks, loads and opens an artifact.
func Load(path string) (*Model, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var m Model
	var e C.mcc_error
	if err := failed(C.mcc_load(name, nil, &m.lib, &e), &e); err != nil {
		return nil, err
	}
	return &m, nil
}

// Close unloads the network; its contexts must be closed before.
func (m *Model) Close() {
	C.mcc_unload(m.lib)
	m.lib = nil
}

func names(ports *C.mcc_port, n C.uint32_t) []string {
	list := []string{}
	for i := 0; i < int(n); i++ {
		port := (*C.mcc_port)(unsafe.Add(unsafe.Pointer(ports), uintptr(i)*unsafe.Sizeof(*ports)))
		list = append(list, C.GoString(port.name))
	}
	return list
}

// Inputs has the names of the inputs.
func (m *Model) Inputs() []string { return names(m.lib.api.in, m.lib.api.n_in) }

// Outputs has the names of the outputs.
func (m *Model) Outputs() []string { return names(m.lib.api.out, m.lib.api.n_out) }

// Context is the memory of a run.
type Context struct {
	model *Model
	ctx   *C.mcc_ctx
}

// NewContext makes one; the model must outlive it.
func (m *Model) NewContext() (*Context, error) {
	c := &Context{model: m}
	var e C.mcc_error
	if err := failed(C.context_new(m.lib, &c.ctx, &e), &e); err != nil {
		return nil, err
	}
	return c, nil
}

// Close gives the memory back.
func (c *Context) Close() {
	C.context_free(c.model.lib, c.ctx)
	c.ctx = nil
}

// Run reads in and writes out, whose shapes must be those that the network gives for in's.
func (c *Context) Run(in, out []*Tensor) error {
	api := c.model.lib.api
	if c.ctx == nil || len(in) != int(api.n_in) || len(out) != int(api.n_out) {
		return &Error{C.MCC_E_ARG, "a closed context, or another number of tensors than the model has ports"}
	}
	n := len(in) + len(out)
	list := C.calloc(C.size_t(n)+1, C.size_t(unsafe.Sizeof(uintptr(0))))
	if list == nil {
		return &Error{C.MCC_E_NOMEM, "out of memory"}
	}
	defer C.free(list)
	for i, t := range append(append([]*Tensor(nil), in...), out...) {
		if t == nil || t.raw == nil {
			return &Error{C.MCC_E_ARG, "a tensor that was given back"}
		}
		unsafe.Slice((**C.DLTensor)(list), n)[i] = t.raw
	}
	var e C.mcc_error
	return failed(C.run(c.model.lib, c.ctx, (**C.DLTensor)(list), &e), &e)
}
