//! The shell that formats and mounts extra volumes.

use super::input::Mount;
use super::quote::{fstab_escaped, shell_quoted, single_quoted};

/// The commands for all mounts; empty without mounts.
///
/// A device is formatted only when `blkid` finds nothing on it (exit code 2), not after any other error. The script is
/// safe to run at every boot, and after a stage that sets `set -euo pipefail`.
pub(super) fn mount_script(mounts: &[Mount]) -> String {
    mounts.iter().map(mount_commands).collect()
}

fn mount_commands(mount: &Mount) -> String {
    let file_system = mount.file_system.to_ascii_lowercase();
    let device_path = absolute("/dev/", &mount.device);
    let directory_path = absolute("/", &mount.path);
    let device = shell_quoted(&device_path);
    let directory = shell_quoted(&directory_path);
    let mut out = format!(
        "probe=0\n\
         blkid -p {device} >/dev/null 2>&1 || probe=$?\n\
         if [ \"$probe\" -eq 2 ]; then\n\
         \x20 mkfs.{file_system} {device}\n\
         fi\n\
         mkdir -p {directory}\n\
         mountpoint -q {directory} || mount {device} {directory}\n"
    );
    if mount.persist {
        let line = single_quoted(&format!(
            "{}    {}    {file_system}    defaults    0    2",
            fstab_escaped(&device_path),
            fstab_escaped(&directory_path),
        ));
        out.push_str(&format!("grep -qxF {line} /etc/fstab || echo {line} >> /etc/fstab\n"));
    }
    out
}

fn absolute(base: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{base}{path}") }
}
