//! The texts behind the labels of a file's routes.

use std::ffi::{CString, c_char};

/// The texts of a file's labels, such as next hops; the most frequent one has the number 1.
pub struct Labels {
    texts: Vec<CString>,
}

impl Labels {
    /// Makes texts that C can read: without the zero bytes that a damaged file may have.
    pub(crate) fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let text = |text: &str| CString::new(text.replace('\0', "")).unwrap_or_default();
        Self { texts: texts.into_iter().map(text).collect() }
    }
}

/// Returns the number of labels, which are 1 to this; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn fp_labels_count(labels: Option<&Labels>) -> usize {
    labels.map_or(0, |labels| labels.texts.len())
}

/// Returns the text of a label, which is valid as long as `labels`; NULL if there is none of this number.
#[unsafe(no_mangle)]
pub extern "C" fn fp_labels_text(labels: Option<&Labels>, label: u32) -> *const c_char {
    let index = usize::try_from(label).ok().and_then(|label| label.checked_sub(1));
    let text = labels.zip(index).and_then(|(labels, index)| labels.texts.get(index));
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

/// Frees the texts.
#[unsafe(no_mangle)]
pub extern "C" fn fp_labels_free(labels: Option<Box<Labels>>) {
    drop(labels);
}
