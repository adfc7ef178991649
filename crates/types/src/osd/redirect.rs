//! Where an object of a redirecting manifest really is.

use bstr::BString;
use denc::{Denc, Error, Reader, Writer};

use crate::locator::ObjectLocator;

/// Wire: request_redirect_t v1: locator, name, an empty blob.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestRedirect {
    /// Where.
    pub locator: ObjectLocator,
    /// The name there; empty for the same.
    pub object: BString,
}

impl Denc for RequestRedirect {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.locator);
            w.put(&self.object);
            w.u32(0);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<RequestRedirect, Error> {
        r.envelope("RequestRedirect", 1, 1, |r, _| {
            let redirect = RequestRedirect { locator: r.get()?, object: r.get()? };
            r.blob_slice()?;
            Ok(redirect)
        })
    }
}
