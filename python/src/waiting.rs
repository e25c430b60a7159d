//! Threads of Python that wait, and coroutines that do.

use std::{pin::pin, time::Duration};

use pyo3::{
    exceptions::PyTimeoutError,
    prelude::*,
    types::{PyDict, PyTuple},
};
use tokio::time::{Instant, timeout, timeout_at};

use crate::process::Process;

/// How long a signal waits for its handler, at most.
const SIGNALS: Duration = Duration::from_millis(50);

/// Says that something took longer than it may.
fn too_long(limit: Duration) -> PyErr {
    PyTimeoutError::new_err((
        libc::ETIMEDOUT,
        format!(
            "no result within {} s: the server does not respond, or the link is slow",
            limit.as_secs_f64()
        ),
    ))
}

/// Waits for something while other threads run. Handlers of signals run meanwhile, and what they raise ends it.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    limit: Option<Duration>,
    future: impl Future<Output = T> + Send,
) -> PyResult<T> {
    wait_and(py, limit, future, |_| Ok(()))
}

/// As [`wait`], and calls something again and again meanwhile.
pub(crate) fn wait_and<T: Send>(
    py: Python<'_>,
    limit: Option<Duration>,
    future: impl Future<Output = T> + Send,
    mut meanwhile: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let runtime = &Process::of_this(py)?.runtime;
    let mut future = pin!(future);
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        let next = Instant::now() + SIGNALS;
        let until = deadline.map_or(next, |deadline| deadline.min(next));
        let part = future.as_mut();
        let done = py.detach(move || runtime.block_on(async move { timeout_at(until, part).await }));
        if let Ok(value) = done {
            return Ok(value);
        }
        py.check_signals()?;
        meanwhile(py)?;
        if let Some(limit) = limit.filter(|_| deadline.is_some_and(|deadline| Instant::now() >= deadline)) {
            return Err(too_long(limit));
        }
    }
}

/// Begins something, and returns an `asyncio.Future` of the running loop for it. If that is cancelled, it ends.
pub(crate) fn begin<'py, T: Send + 'static>(
    py: Python<'py>,
    limit: Option<Duration>,
    future: impl Future<Output = T> + Send + 'static,
    convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    let (promise, awaited) = promise(py)?;
    let task = Process::of_this(py)?.runtime.spawn(async move {
        let done = match limit {
            Some(limit) => timeout(limit, future).await.map_err(|_| too_long(limit)),
            None => Ok(future.await),
        };
        promise.settle(|py| convert(py, done?));
    });
    let cancel = Cancel(Some(Box::new(move || task.abort())));
    awaited.call_method1("add_done_callback", (cancel,))?;
    Ok(awaited)
}

/// A result that a coroutine waits for.
pub(crate) struct Promise {
    event_loop: Py<PyAny>,
    awaited: Py<PyAny>,
}

/// Returns a result to be settled, and the `asyncio.Future` for it.
pub(crate) fn promise(py: Python<'_>) -> PyResult<(Promise, Bound<'_, PyAny>)> {
    let event_loop = py.import("asyncio")?.call_method0("get_running_loop")?;
    let awaited = event_loop.call_method0("create_future")?;
    Ok((Promise { event_loop: event_loop.unbind(), awaited: awaited.clone().unbind() }, awaited))
}

impl Promise {
    /// Calls something in the loop's thread. Where the loop has ended, nobody waits.
    pub(crate) fn call(&self, py: Python<'_>, function: &Bound<'_, PyAny>, arguments: &Bound<'_, PyTuple>) {
        let all: Vec<_> = std::iter::once(function.clone()).chain(arguments.iter()).collect();
        let scheduled = PyTuple::new(py, all)
            .and_then(|all| self.event_loop.bind(py).call_method1("call_soon_threadsafe", all));
        drop(scheduled);
    }

    /// Gives the result to whoever waits. At the end of the interpreter nobody does.
    pub(crate) fn settle(self, result: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>>) {
        let _ = Python::try_attach(|py| {
            let (value, error) = match result(py) {
                Ok(value) => (value, None),
                Err(error) => (py.None(), Some(error.into_value(py).into_any())),
            };
            let settle = Settle { awaited: self.awaited.clone_ref(py), value, error };
            if let (Ok(settle), Ok(none)) = (Bound::new(py, settle), PyTuple::new(py, [0; 0])) {
                self.call(py, settle.as_any(), &none);
            }
        });
    }
}

/// Sets the result of an `asyncio.Future`, in the thread of its loop.
#[pyclass]
struct Settle {
    awaited: Py<PyAny>,
    value: Py<PyAny>,
    error: Option<Py<PyAny>>,
}

#[pymethods]
impl Settle {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let awaited = self.awaited.bind(py);
        if awaited.call_method0("done")?.extract()? {
            return Ok(());
        }
        match &self.error {
            Some(error) => awaited.call_method1("set_exception", (error,))?,
            None => awaited.call_method1("set_result", (&self.value,))?,
        };
        Ok(())
    }
}

/// Ends what an `asyncio.Future` is about when that is cancelled.
#[pyclass]
pub(crate) struct Cancel(pub(crate) Option<Box<dyn FnOnce() + Send + Sync>>);

#[pymethods]
impl Cancel {
    #[pyo3(signature = (awaited, **_context))]
    fn __call__(&mut self, awaited: &Bound<'_, PyAny>, _context: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let end = self.0.take();
        if awaited.call_method0("cancelled")?.extract()? {
            end.into_iter().for_each(|end| end());
        }
        Ok(())
    }
}
