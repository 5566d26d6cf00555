//! The structures of mcc.h and the functions of mcc_load.h, as C lays them out.
#![allow(dead_code)]
use std::os::raw::{c_char, c_int, c_void};

pub const OK: c_int = 0;
pub const CPU: i32 = 1;
pub const FLOAT32: DataType = DataType { code: 2, bits: 32, lanes: 1 };

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
pub struct Tensor {
    pub data: *mut c_void,
    pub device_type: i32,
    pub device_id: i32,
    pub ndim: i32,
    pub dtype: DataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
pub struct Error {
    pub code: i32,
    pub node: i32,
    pub text: [c_char; 248],
}

#[repr(C)]
pub struct Symbol {
    pub name: *const c_char,
    pub min: i64,
    pub max: i64,
    pub step: i64,
    pub reserved: [u64; 2],
}

#[repr(C)]
pub struct Dim {
    pub extent: i64,
    pub symbol: i32,
    pub room: i32,
    pub expr: *const c_char,
}

#[repr(C)]
pub struct Port {
    pub name: *const c_char,
    pub dims: *const Dim,
    pub ndim: i32,
    pub dtype: DataType,
    pub flags: u64,
    pub reserved: [u64; 2],
}

/// Members of mcc_api; those that nothing here calls are plain addresses.
#[repr(C)]
pub struct Api {
    pub abi: u32,
    pub n_in: u32,
    pub n_out: u32,
    pub n_sym: u32,
    pub n_node: u32,
    pub pad: u32,
    pub size: usize,
    pub name: *const c_char,
    pub compiler: *const c_char,
    pub target: *const c_char,
    pub features: *const c_char,
    pub meta: *const c_char,
    pub inputs: *const Port,
    pub outputs: *const Port,
    pub sym: *const Symbol,
    pub node: *const c_void,
    pub open: *const c_void,
    pub close: *const c_void,
    pub plan: unsafe extern "C" fn(*const c_void, *const *const Tensor, *const *mut i64, *mut usize, *mut Error) -> c_int,
    pub ctx_new: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut *mut c_void, *mut Error) -> c_int,
    pub ctx_free: unsafe extern "C" fn(*mut c_void),
    pub run: unsafe extern "C" fn(*mut c_void, *const *const Tensor, *const *mut Tensor, *mut Error) -> c_int,
    pub run_dlpack: *const c_void,
    pub cancel: unsafe extern "C" fn(*mut c_void),
    pub run_values: *const c_void,
    pub value_release: *const c_void,
}

#[repr(C)]
pub struct Lib {
    pub api: *const Api,
    pub model: *mut c_void,
    pub handle: *mut c_void,
}

extern "C" {
    pub fn mcc_load(path: *const c_char, host: *const c_void, lib: *mut *mut Lib, error: *mut Error) -> c_int;
    pub fn mcc_unload(lib: *mut Lib);
}
