//! Memory of Python's objects that files are read into and written from.
//!
//! The buffer protocol is in the stable ABI since Python 3.11. The two functions and the struct are older than that and were never
//! changed, so they are declared here, and Python 3.9 and 3.10 can use the same module.

#![expect(unsafe_code, reason = "memory of other objects")]

use std::{
    ffi::{c_char, c_int, c_void},
    mem::MaybeUninit,
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{ffi, prelude::*};

/// `Py_buffer` (Python/C API, Buffer Protocol).
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// Bytes in one piece.
const SIMPLE: c_int = 0;
/// That may be written.
const WRITABLE: c_int = 1;

/// The memory of an object, which stays where it is as long as this lives. It is released by a thread that is attached.
pub(crate) struct Buffer<'py> {
    view: Box<View>,
    _attached: Python<'py>,
}

impl<'py> Buffer<'py> {
    /// Returns the bytes of an object, which are only read.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::get(object, SIMPLE)
    }

    /// Returns the bytes of an object, which may be written.
    pub(crate) fn writable(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::get(object, WRITABLE)
    }

    fn get(object: &Bound<'py, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(MaybeUninit::<View>::zeroed());
        // SAFETY: the object lives, this thread is attached, and there is room for the view.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: it was filled, and an address of zero is a valid one for its pointers.
        Ok(Self { view: unsafe { view.assume_init() }, _attached: object.py() })
    }

    /// Returns where the bytes are.
    pub(crate) fn memory(&self) -> Memory {
        Memory { start: self.view.buf.cast(), length: usize::try_from(self.view.len).unwrap_or(0) }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: it was filled by PyObject_GetBuffer, and this thread is attached.
        unsafe { PyBuffer_Release(&raw mut *self.view) }
    }
}

/// Bytes of an object that somebody keeps in place. As with any file of Python, other threads may change them meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    start: *mut u8,
    length: usize,
}

// SAFETY: whoever makes one keeps the memory until nobody uses it any more.
unsafe impl Send for Memory {}
// SAFETY: all that a shared one gives is its length and copies of it.
unsafe impl Sync for Memory {}

impl Memory {
    /// Returns where bytes of this process are, which outlive every use.
    pub(crate) const fn of(bytes: &mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), length: bytes.len() }
    }

    pub(crate) const fn len(self) -> usize {
        self.length
    }

    /// Returns the part from an offset on, up to so many bytes.
    pub(crate) fn part(self, offset: usize, most: usize) -> Self {
        let offset = offset.min(self.length);
        // SAFETY: it is at most one byte behind the last one.
        Self { start: unsafe { self.start.add(offset) }, length: most.min(self.length - offset) }
    }

    /// Returns the bytes, for as long as their owner keeps them in place.
    pub(crate) const fn bytes<'a>(self) -> &'a [u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the owner keeps them in place.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    /// Returns the bytes to be written, for as long as their owner keeps them in place.
    pub(crate) const fn bytes_mut<'a>(self) -> &'a mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: the owner keeps them in place, and whoever fills them is the only one here who does.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

/// Memory that another thread writes into, until it is taken away.
#[derive(Clone)]
pub(crate) struct Lent(Arc<Mutex<Option<Memory>>>);

/// Takes memory away when it is dropped. A write that runs at that moment ends before.
pub(crate) struct TakeAway(Lent);

impl Lent {
    pub(crate) fn new(memory: Memory) -> (Self, TakeAway) {
        let lent = Self(Arc::new(Mutex::new(Some(memory))));
        (lent.clone(), TakeAway(lent))
    }

    /// Copies bytes to an offset; whether there was memory for them.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(part) = memory.map(|memory| memory.part(offset, bytes.len())) else { return false };
        if part.length < bytes.len() {
            return false;
        }
        // SAFETY: there is room for them, and they do not overlap: no reply lies in an object of Python.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), part.start, bytes.len()) };
        true
    }
}

impl Drop for TakeAway {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
