//! The user who started the server over stdio.

use libris_core::{Authentication, Identity};

/// The identity of the user who started this process, with the user name from the environment. The name proves nothing:
/// whoever starts the process can choose it. That is safe, because this user can read everything that the process can
/// read anyway.
pub fn local_user() -> Identity {
    let variables = ["USER", "LOGNAME", "USERNAME"];
    let name = variables.iter().find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    let name = name.unwrap_or_else(|| "local".to_owned());
    Identity::new(name).with_authentication(Authentication::LocalUser)
}
