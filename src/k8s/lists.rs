//! Lists that are read page by page, so that a large one takes neither the API server's memory nor this process's.

use std::fmt::Debug;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

use super::KubeError;
use super::error::{ResourceName, call};

/// How many objects a page has.
const PAGE_SIZE: u32 = 500;

/// Reads all pages, and keeps what `keep` returns of each object. `params` may set the size of a page.
///
/// # Errors
/// The API server did not answer, or the caller may not list the objects.
pub(super) async fn list_pages<K, T>(
    resource: impl Into<ResourceName>,
    api: &Api<K>,
    params: ListParams,
    mut keep: impl FnMut(K) -> Option<T>,
) -> Result<Vec<T>, KubeError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let resource = resource.into();
    let mut params = ListParams { limit: params.limit.or(Some(PAGE_SIZE)), ..params };
    let mut found = Vec::new();
    loop {
        let page = call("list", resource.clone(), api.list(&params)).await?;
        found.extend(page.items.into_iter().filter_map(&mut keep));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}
