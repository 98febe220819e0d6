//! The return types of prompt functions.

use libris_core::{PromptContent, PromptMessage, Result, Uri};

use super::return_types::public_error;

/// A return type of a prompt function.
///
/// | type | messages |
/// |---|---|
/// | `String`, `&str` | a text of the user |
/// | `Uri` | the contents of this resource, as a message of the user |
/// | [`PromptContent`] | a message of the user |
/// | [`PromptMessage`], `Vec<PromptMessage>` | unchanged |
/// | `Option` of any of these | `None` gives the error "unknown prompt" |
/// | `Result` of any of these | a [`libris::Error`](libris_core::Error), or one in the `source()` chain, is sent to the caller; any other error is logged, and the caller learns only that the prompt failed |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the messages of a prompt",
    label = "`{Self}` does not implement `IntoPromptMessages`",
    note = "return text (`String`), `libris::Uri`, `libris::PromptMessage`, a `Vec` of messages, or an `Option` or a \
            `Result` of one of these"
)]
pub trait IntoPromptMessages {
    /// The messages; `None` if there is no such prompt.
    fn into_prompt_messages(self) -> Result<Option<Vec<PromptMessage>>>;
}

impl IntoPromptMessages for Vec<PromptMessage> {
    fn into_prompt_messages(self) -> Result<Option<Vec<PromptMessage>>> {
        Ok(Some(self))
    }
}

impl IntoPromptMessages for PromptMessage {
    fn into_prompt_messages(self) -> Result<Option<Vec<PromptMessage>>> {
        Ok(Some(vec![self]))
    }
}

impl IntoPromptMessages for PromptContent {
    fn into_prompt_messages(self) -> Result<Option<Vec<PromptMessage>>> {
        PromptMessage::user(self).into_prompt_messages()
    }
}

impl IntoPromptMessages for String {
    fn into_prompt_messages(self) -> Result<Option<Vec<PromptMessage>>> {
        PromptMessage::user(self).into_prompt_messages()
    }
}

impl IntoPromptMessages for &str {
    fn into_prompt_messages(self) -> Result<Option<Vec<PromptMessage>>> {
        PromptMessage::user(self).into_prompt_messages()
    }
}

impl IntoPromptMessages for Uri {
    fn into_prompt_messages(self) -> Result<Option<Vec<PromptMessage>>> {
        PromptMessage::user(self).into_prompt_messages()
    }
}

impl<T: IntoPromptMessages> IntoPromptMessages for Option<T> {
    fn into_prompt_messages(self) -> Result<Option<Vec<PromptMessage>>> {
        match self {
            Some(messages) => messages.into_prompt_messages(),
            None => Ok(None),
        }
    }
}

impl<T: IntoPromptMessages, E: Into<Box<dyn std::error::Error + Send + Sync>>> IntoPromptMessages
    for Result<T, E>
{
    fn into_prompt_messages(self) -> Result<Option<Vec<PromptMessage>>> {
        self.map_err(|error| public_error(error, "make the prompt"))?.into_prompt_messages()
    }
}
