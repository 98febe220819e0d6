//! The prompts source: prompts of the configuration file, which embed resources of all sources.
//!
//! This source has no resources. Its messages name the resources to embed, and the view reads them under the rights of
//! the caller.

mod config;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use libris_core::uri_template::Specificity;
use libris_core::{
    Completion, Contents, Context, Error, Freshness, Page, Prompt, PromptArgument, PromptCompletion,
    PromptMessage, PromptRole, Prompts, Proof, Result, Source, Uri,
};

pub use config::{ArgumentConfig, Config, MessageConfig, PromptsConfig};

use crate::registry::{CombinedSection, ConfigFile, Definition, OpenedSource, Section};
use text::PromptText;

/// The maximum number of resources that the texts of one prompt may embed.
const MAX_RESOURCES: usize = 32;

impl Section for PromptsConfig {
    fn definitions(self, file: &ConfigFile) -> Vec<Box<dyn Definition>> {
        self.combined_definition(file)
    }
}

impl CombinedSection for PromptsConfig {
    fn has_no_entries(&self) -> bool {
        self.prompts.is_empty()
    }

    fn open(&self, _folder: &Path) -> Result<OpenedSource> {
        Ok(OpenedSource::new(ConfiguredPrompts::new(self)?))
    }
}

/// The prompts of a configuration file.
pub struct ConfiguredPrompts {
    prompts: BTreeMap<String, ConfiguredPrompt>,
}

struct ConfiguredPrompt {
    listed: Prompt,
    messages: Vec<(PromptRole, PromptText)>,
    /// The completions, by argument.
    values: BTreeMap<String, Vec<String>>,
}

impl ConfiguredPrompts {
    /// Parses the texts and checks the arguments.
    pub fn new(config: &PromptsConfig) -> Result<Self> {
        let mut prompts = BTreeMap::new();
        for prompt in &config.prompts {
            if prompt.name.is_empty() {
                return Err(Error::invalid(
                    "a prompt has no `name`; hint: set `name` to a short name, such as `review`",
                ));
            }
            let wrong = |why: String| Error::invalid(format!("the prompt `{}` is wrong: {why}", prompt.name));
            let parsed = ConfiguredPrompt::new(prompt).map_err(wrong)?;
            if prompts.insert(prompt.name.clone(), parsed).is_some() {
                return Err(wrong("its name is that of another; hint: rename one of them".to_owned()));
            }
        }
        Ok(Self { prompts })
    }
}

impl ConfiguredPrompt {
    /// Validates a prompt. The error says what is wrong.
    fn new(config: &Config) -> std::result::Result<Self, String> {
        let texts: Vec<(PromptRole, &str)> = match (&config.text, &config.messages[..]) {
            (Some(text), []) => vec![(PromptRole::User, text)],
            (None, [_, ..]) => config.messages.iter().map(|message| (message.role, &*message.text)).collect(),
            (Some(_), _) => {
                return Err("it has a `text` and a `message`; hint: remove one of them".to_owned());
            }
            (None, []) => return Err("it has no `text`; hint: set `text` to the message".to_owned()),
        };
        let mut messages = Vec::new();
        for (role, text) in texts {
            if text.trim().is_empty() {
                return Err("it has an empty text".to_owned());
            }
            messages.push((role, PromptText::parse(text)?));
        }
        let resources: Vec<_> = messages.iter().flat_map(|(_, text)| text.resources().cloned()).collect();
        if resources.len() > MAX_RESOURCES {
            return Err(format!("it embeds {} resources, and {MAX_RESOURCES} is the most", resources.len()));
        }
        let mut used: Vec<&str> = Vec::new();
        for (_, text) in &messages {
            used.extend(text.arguments().into_iter().filter(|name| !used.contains(name)).collect::<Vec<_>>());
        }
        let arguments = arguments(&config.arguments, &used)?;
        let listed = Prompt {
            name: config.name.clone(),
            title: config.title.clone(),
            description: config.description.clone(),
            arguments,
            icons: config.icons.clone(),
            meta: config.meta.clone(),
            resources,
        };
        let with_values = config.arguments.iter().filter(|argument| !argument.complete.is_empty());
        let values = with_values.map(|argument| (argument.name.clone(), argument.complete.clone())).collect();
        Ok(Self { listed, messages, values })
    }
}

/// The declared arguments, or if there are none, those that the texts use.
fn arguments(declared: &[ArgumentConfig], used: &[&str]) -> std::result::Result<Vec<PromptArgument>, String> {
    if declared.is_empty() {
        return Ok(used.iter().map(|name| PromptArgument::required(*name)).collect());
    }
    if let Some(unknown) = used.iter().find(|name| !declared.iter().any(|argument| argument.name == **name)) {
        return Err(format!(
            "its text uses `{unknown}`, which is not an argument; hint: add it as a `[[prompt.argument]]`"
        ));
    }
    for (at, ArgumentConfig { name, .. }) in declared.iter().enumerate() {
        if name.is_empty() {
            return Err("an argument has no `name`".to_owned());
        }
        if !used.contains(&&**name) {
            return Err(format!("its text does not use the argument `{name}`; hint: write `{{{{{name}}}}}`"));
        }
        if declared[..at].iter().any(|earlier| earlier.name == *name) {
            return Err(format!("it has the argument `{name}` twice"));
        }
    }
    let argument = |config: &ArgumentConfig| PromptArgument {
        name: config.name.clone(),
        title: config.title.clone(),
        description: config.description.clone(),
        required: config.required,
    };
    Ok(declared.iter().map(argument).collect())
}

#[async_trait]
impl Source for ConfiguredPrompts {
    fn covers(&self, _uri: &Uri) -> Option<Specificity> {
        None
    }

    fn name(&self) -> Cow<'_, str> {
        "prompts".into()
    }

    async fn list(&self, _after: Option<&Uri>, _limit: usize, _context: &Context) -> Result<Page> {
        Ok(Page { freshness: Freshness::proven(Proof::always()), ..Page::default() })
    }

    async fn read(&self, uri: &Uri, _context: &Context) -> Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    async fn prompts(&self, _context: &Context) -> Result<Prompts> {
        Ok(self.prompts.values().map(|prompt| prompt.listed.clone()).collect::<Vec<_>>().into())
    }

    async fn prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        _context: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        let Some(prompt) = self.prompts.get(name) else { return Ok(None) };
        let mut messages = Vec::new();
        for (role, text) in &prompt.messages {
            let contents = text.fill(arguments)?;
            messages.extend(contents.into_iter().map(|content| PromptMessage { role: *role, content }));
        }
        Ok(Some(messages))
    }

    async fn complete_prompt(
        &self,
        partial: PromptCompletion<'_>,
        _context: &Context,
    ) -> Result<Option<Completion>> {
        let values = self.prompts.get(partial.prompt).and_then(|prompt| prompt.values.get(partial.argument));
        Ok(values.map(|values| Completion::of(values, partial.typed, partial.limit)))
    }
}

#[cfg(test)]
mod tests {
    use super::{ConfiguredPrompts, PromptsConfig};

    fn error(toml: &str) -> String {
        #[derive(serde::Deserialize)]
        struct File {
            prompt: PromptsConfig,
        }
        let file: File = toml::from_str(toml).unwrap();
        ConfiguredPrompts::new(&file.prompt).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(error("[[prompt]]\nname = 'a'\ntext = 'Hello {{who}} {{resource:note://{id}}}'"), "");
        for (toml, why) in [
            ("[[prompt]]\ntext = 'a'", "has no `name`"),
            ("[[prompt]]\nname = 'a'", "has no `text`"),
            ("[[prompt]]\nname = 'a'\ntext = ' '", "an empty text"),
            ("[[prompt]]\nname = 'a'\ntext = 'a'\nmessage = [{ text = 'b' }]", "a `text` and a `message`"),
            ("[[prompt]]\nname = 'a'\ntext = '{{x'", "has no `}}`"),
            (
                "[[prompt]]\nname = 'a'\ntext = '{{x}}'\nargument = [{ name = 'y' }]",
                "`x`, which is not an argument",
            ),
            (
                "[[prompt]]\nname = 'a'\ntext = '{{x}}'\nargument = [{ name = 'x' }, { name = 'y' }]",
                "does not use",
            ),
            ("[[prompt]]\nname = 'a'\ntext = '{{x}}'\nargument = [{ name = 'x' }, { name = 'x' }]", "twice"),
            ("[[prompt]]\nname = 'a'\ntext = 'a'\n[[prompt]]\nname = 'a'\ntext = 'b'", "that of another"),
        ] {
            let error = error(toml);
            assert!(error.contains(why), "{toml}: {error}");
        }
        let many = format!("[[prompt]]\nname = 'a'\ntext = '{}'", "{{resource:a:b}}".repeat(33));
        assert!(error(&many).contains("33 resources"));
    }
}
