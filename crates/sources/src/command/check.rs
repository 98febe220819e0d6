//! Validation of the configuration of a command, beyond the types of its values.

use libris_core::UriTemplate;
use libris_core::uri_template::Variables;

use super::Config;
use super::budgets::MAX_PROCESSES;
use super::complete::VariableCompletions;
use super::entry::{MIN_POLL_INTERVAL, RANGE_VARIABLES, RunnableCommand};
use super::invocation::Invocation;

impl RunnableCommand {
    /// Checks that the configured defaults and completions are allowed values.
    pub(super) fn check_values(&self, template: Option<&UriTemplate>) -> Result<(), String> {
        for (name, rule) in &self.rules {
            if self.is_range_variable(name) {
                if self.config.pattern.contains_key(name) {
                    return Err(format!(
                        "its `{name}` selects a range of the output and cannot have a pattern; hint: remove it"
                    ));
                }
                continue;
            }
            let default = self.config.default.get(name);
            if default.is_none() && template.is_some_and(|template| template.is_optional(name)) {
                return Err(format!("its variable `{name}` may be left out and so needs a `default`"));
            }
            let offered = match self.completions.get(name) {
                Some(VariableCompletions::Fixed(values)) => &values[..],
                _ => &[],
            };
            if let Some(value) = default.into_iter().chain(offered).find(|value| !rule.allows(value)) {
                return Err(format!(
                    "`{value}` is not allowed as the value of its variable `{name}`; hint: correct `default`, `complete` or \
                     `pattern`"
                ));
            }
        }
        let mut defaults = RANGE_VARIABLES.iter().filter(|name| self.config.default.contains_key(**name));
        if defaults.any(|name| self.is_range_variable(name)) {
            self.requested_range(&Variables::new()).map_err(|error| format!("its `default`: {error}"))?;
        }
        Ok(())
    }
}

pub(super) fn check_numbers(config: &Config) -> Result<(), String> {
    if config.timeout.is_zero() {
        return Err("its `timeout` must be longer than 0".into());
    }
    if config.concurrent == 0 || config.concurrent > MAX_PROCESSES {
        return Err(format!("its `concurrent` must be from 1 to {MAX_PROCESSES}"));
    }
    if config.poll.is_some_and(|poll| poll < MIN_POLL_INTERVAL) {
        return Err("its `poll` must be at least `1s`".into());
    }
    config.check_descriptive_keys()
}

pub(super) fn check_environment(config: &Config) -> Result<(), String> {
    let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
    match config.env.keys().chain(&config.inherit).find(|name| !is_name(name)) {
        Some(name) => Err(format!(
            "`{name}` is not a valid name of an environment variable; hint: use letters, digits and `_`"
        )),
        None if config.env.values().any(|value| value.contains('\0')) => {
            Err("its `env` contains a zero byte; hint: remove it".into())
        }
        None => Ok(()),
    }
}

/// Checks that the configuration uses all variables of the URI, and no others. Otherwise a misspelt name would
/// fail only at run time.
pub(super) fn check_names(config: &Config, invocation: &Invocation, names: &[&str]) -> Result<(), String> {
    let used = config.pattern.keys().chain(config.default.keys()).chain(config.complete.keys());
    let used = used.map(String::as_str).chain(invocation.variables());
    if let Some(unknown) = used.into_iter().find(|name| !names.contains(name)) {
        let known: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        return Err(match known.is_empty() {
            true => format!("it has no variable `{unknown}`; hint: add it to `uri`, or remove it"),
            false => format!("it has no variable `{unknown}`, only {}", known.join(", ")),
        });
    }
    let used =
        |name: &str| invocation.variables().any(|used| used == name) || RANGE_VARIABLES.contains(&name);
    match names.iter().find(|name| !used(name)) {
        Some(name) => Err(format!(
            "its variable `{name}` does not occur in `run`; hint: write `{{{{{name}}}}}` as an argument"
        )),
        None => Ok(()),
    }
}

/// Whether a variable of the template can have several values, as in `{name*}`.
pub(super) fn takes_lists(template: &UriTemplate) -> bool {
    let expressions = template.as_str().split('{').skip(1);
    expressions.filter_map(|rest| rest.split_once('}')).any(|(inside, _)| inside.contains('*'))
}
