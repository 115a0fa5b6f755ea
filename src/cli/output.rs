//! What the commands print. A reader that has read enough, such as `head`, is not an error: the exit status stays that of the
//! command.

use std::io::{ErrorKind, Write};

use super::missing_permissions::explain_denied;
use crate::k8s::KubeError;
use crate::util::escape::escape_control;

/// Writes to standard output.
///
/// # Errors
/// The output cannot be written, for example because the disk is full.
pub(crate) fn print(text: &[u8]) -> std::io::Result<()> {
    ignore_closed(std::io::stdout().lock().write_all(text).and_then(|()| std::io::stdout().lock().flush()))
}

/// Writes a line to standard error. If no reader is left, nothing else can be reported.
pub fn print_error(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes lines to standard error.
pub(crate) fn print_errors(text: &[u8]) {
    let _ = std::io::stderr().lock().write_all(text);
}

fn ignore_closed(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// An error as text: what was attempted and each cause once. A cause that its successor or predecessor already contains
/// is left out, and an answer of the API server is its message.
pub fn describe_error(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = vec![];
    for cause in error.chain() {
        if let Some(denied @ KubeError::Forbidden { .. }) = cause.downcast_ref::<KubeError>() {
            return escape_control(&explain_denied(denied, None));
        }
        // The cause of a known answer of the API server is the same answer.
        let (text, is_last) = match cause.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => (status.message.clone(), true),
            _ => (cause.to_string(), false),
        };
        if text.is_empty() || parts.iter().any(|known| known.contains(&text)) {
            continue;
        }
        // A wrapper that ends with the text of its cause, as `service error: refused` with the cause `refused`.
        if let Some(last) = parts.last_mut().filter(|last| text.contains(last.as_str())) {
            *last = text;
        } else {
            parts.push(text);
        }
        if is_last {
            break;
        }
    }
    escape_control(&parts.join(": "))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use kube::core::Status;

    use super::*;

    #[test]
    fn errors_are_reported_once_and_in_words() {
        let denied = Status::failure("nodes is forbidden: User \"a\" cannot list", "Forbidden");
        let error: anyhow::Error =
            Err::<(), _>(kube::Error::Api(Box::new(denied))).context("listing nodes").unwrap_err();
        assert_eq!(describe_error(&error), "listing nodes: nodes is forbidden: User \"a\" cannot list");
        let twice: anyhow::Error =
            Err::<(), _>(std::io::Error::other("refused")).context("connecting: refused").unwrap_err();
        assert_eq!(describe_error(&twice), "connecting: refused");
    }

    #[test]
    fn closed_pipe_is_not_an_error() {
        assert!(ignore_closed(Err(ErrorKind::BrokenPipe.into())).is_ok());
        assert!(ignore_closed(Err(ErrorKind::StorageFull.into())).is_err());
    }
}
