//! Compiled networks from Rust: what mcc_load.h and mcc.h do, with Drop, slices and Result.
//!
//!     let model = mcc::Model::load("net.so")?;
//!     let mut run = mcc::Context::new(&model)?;
//!     run.run(&[mcc::input(&x, &[1, 3, 224, 224])?], &mut [mcc::output(&mut y, &[1, 1000])?])?;
//!
//! A model serves any number of threads, a context one run at a time (`run` takes it by &mut). Elements are f32 here; another type
//! is a row of `Element`.
use crate::raw;
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr;

#[derive(Debug)]
pub struct Error {
    pub code: i32,
    pub text: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} ({})", self.text, self.code)
    }
}
impl std::error::Error for Error {}

const E_ARG: i32 = -1;
const E_SHAPE: i32 = -2;

fn refused<T>(code: i32, text: &str) -> Result<T, Error> {
    Err(Error { code, text: text.into() })
}

/// Calls a function of the table, which fills the error where it returns another thing than 0.
fn checked(call: impl FnOnce(*mut raw::Error) -> i32) -> Result<(), Error> {
    let mut e = raw::Error { code: 0, node: -1, text: [0; 248] };
    match call(&mut e) {
        raw::OK => Ok(()),
        code => {
            e.text[247] = 0;
            let text = unsafe { CStr::from_ptr(e.text.as_ptr()) }.to_string_lossy().into_owned();
            Err(Error { code, text })
        }
    }
}

/// A Rust type and what DLPack calls it.
pub trait Element {
    const TYPE: raw::DataType;
}
impl Element for f32 {
    const TYPE: raw::DataType = raw::FLOAT32;
}

/// Memory of the caller with its shape: compact, row-major.
pub struct Tensor<'a> {
    data: *mut c_void,
    dtype: raw::DataType,
    shape: Vec<i64>,
    memory: PhantomData<&'a mut ()>,
}

fn tensor<'a>(data: *mut c_void, elements: usize, dtype: raw::DataType, shape: &[usize]) -> Result<Tensor<'a>, Error> {
    let n = shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
    if n != Some(elements) {
        return refused(E_SHAPE, "a tensor's shape has another number of elements than its memory");
    }
    Ok(Tensor { data, dtype, shape: shape.iter().map(|&n| n as i64).collect(), memory: PhantomData })
}

pub struct Input<'a>(Tensor<'a>);
pub struct Output<'a>(Tensor<'a>);

/// Elements that a run reads.
pub fn input<'a, T: Element>(values: &'a [T], shape: &[usize]) -> Result<Input<'a>, Error> {
    tensor(values.as_ptr() as *mut c_void, values.len(), T::TYPE, shape).map(Input)
}

/// Elements that a run writes.
pub fn output<'a, T: Element>(values: &'a mut [T], shape: &[usize]) -> Result<Output<'a>, Error> {
    tensor(values.as_mut_ptr() as *mut c_void, values.len(), T::TYPE, shape).map(Output)
}

impl Tensor<'_> {
    /// What C sees, as long as this tensor lives; it only reads the shape.
    fn raw(&self) -> raw::Tensor {
        raw::Tensor {
            data: self.data,
            device_type: raw::CPU,
            device_id: 0,
            ndim: self.shape.len() as i32,
            dtype: self.dtype,
            shape: self.shape.as_ptr() as *mut i64,
            strides: ptr::null_mut(),
            byte_offset: 0,
        }
    }
}

pub struct Model(*mut raw::Lib);

// mcc.h: a model is immutable, for any thread.
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Model {
    pub fn load(path: &str) -> Result<Model, Error> {
        let path = CString::new(path).or_else(|_| refused(E_ARG, "a path with a NUL"))?;
        let mut lib = ptr::null_mut();
        checked(|e| unsafe { raw::mcc_load(path.as_ptr(), ptr::null(), &mut lib, e) })?;
        Ok(Model(lib))
    }

    fn api(&self) -> &raw::Api {
        unsafe { &*(*self.0).api }
    }

    /// The name and element type of each input.
    pub fn inputs(&self) -> Vec<(String, raw::DataType)> {
        self.ports(self.api().inputs, self.api().n_in)
    }

    pub fn outputs(&self) -> Vec<(String, raw::DataType)> {
        self.ports(self.api().outputs, self.api().n_out)
    }

    fn ports(&self, rows: *const raw::Port, n: u32) -> Vec<(String, raw::DataType)> {
        (0..n as usize)
            .map(|i| unsafe {
                let port = &*rows.add(i);
                (CStr::from_ptr(port.name).to_string_lossy().into_owned(), port.dtype)
            })
            .collect()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { raw::mcc_unload(self.0) }
    }
}

/// The memory of a run.
pub struct Context<'m> {
    model: &'m Model,
    ctx: *mut c_void,
}

// A run may be on any thread, one at a time: `run` takes the context by &mut.
unsafe impl Send for Context<'_> {}

impl<'m> Context<'m> {
    pub fn new(model: &'m Model) -> Result<Context<'m>, Error> {
        let mut ctx = ptr::null_mut();
        checked(|e| unsafe { (model.api().ctx_new)((*model.0).model, ptr::null_mut(), 0, &mut ctx, e) })?;
        Ok(Context { model, ctx })
    }

    pub fn run(&mut self, inputs: &[Input], outputs: &mut [Output]) -> Result<(), Error> {
        let api = self.model.api();
        if inputs.len() != api.n_in as usize || outputs.len() != api.n_out as usize {
            return refused(E_ARG, "another number of tensors than the model has ports");
        }
        let ins: Vec<raw::Tensor> = inputs.iter().map(|t| t.0.raw()).collect();
        let mut outs: Vec<raw::Tensor> = outputs.iter().map(|t| t.0.raw()).collect();
        let ins: Vec<*const raw::Tensor> = ins.iter().map(|t| t as *const _).collect();
        let outs: Vec<*mut raw::Tensor> = outs.iter_mut().map(|t| t as *mut _).collect();
        checked(|e| unsafe { (api.run)(self.ctx, ins.as_ptr(), outs.as_ptr(), e) })
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        unsafe { (self.model.api().ctx_free)(self.ctx) }
    }
}
