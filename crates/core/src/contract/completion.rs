//! Laws about templates and completion.

use std::collections::BTreeMap;

use super::{Fixture, LawCheck};
use crate::{Completion, CompletionRequest, Context, Error, Uri, UriTemplate};

/// Every template has a name.
pub async fn templates_have_names(fixture: &dyn Fixture) {
    let law = LawCheck::new("templates_have_names", fixture);
    for template in
        law.expect_ok("listing templates", law.source.templates(&Context::default()).await).templates
    {
        if template.name.is_empty() {
            law.fail(format_args!("`{}` has no name", template.uri));
        }
    }
}

/// A completion respects the limit, and its `total` and `more` are consistent.
pub async fn completions_are_bounded(fixture: &dyn Fixture) {
    let law = LawCheck::new("completions_are_bounded", fixture);
    for template in law.templates().await {
        for (variable, known) in completion_steps(&law, &template).await {
            let completion = law.complete(&template, &variable, "", &known).await;
            let count = completion.values.len();
            let what = format!("completing `{variable}` of `{template}`");
            if count > Completion::LIMIT {
                law.fail(format_args!("{what} gave {count} values"));
            }
            if let Some(total) = completion.total
                && (total < count as u64 || completion.more != (total > count as u64))
            {
                law.fail(format_args!(
                    "{what} gave {count} values of {total}, and `more` is {}",
                    completion.more
                ));
            }
        }
    }
}

/// If a template is expanded with values of completions, the source covers the URI and can read it.
pub async fn completed_templates_can_be_read(fixture: &dyn Fixture) {
    /// How many values of each variable are checked.
    const CHECKED_VALUES: usize = 5;
    let law = LawCheck::new("completed_templates_can_be_read", fixture);
    for template in law.templates().await {
        for (variable, known) in completion_steps(&law, &template).await {
            let values = law.complete(&template, &variable, "", &known).await.values;
            for value in values.into_iter().take(CHECKED_VALUES) {
                let mut known = known.clone();
                known.insert(variable.clone(), value);
                if let Some(known) = fill(&law, &template, known).await {
                    expect_readable(&law, &template, &known).await;
                }
            }
        }
    }
}

/// A value is still offered after its first character has been typed.
pub async fn values_are_still_offered_while_typing(fixture: &dyn Fixture) {
    let law = LawCheck::new("values_are_still_offered_while_typing", fixture);
    for template in law.templates().await {
        for (variable, known) in completion_steps(&law, &template).await {
            let values = law.complete(&template, &variable, "", &known).await.values;
            let Some(value) = values.first() else { continue };
            let typed: String = value.chars().take(1).collect();
            let narrowed = law.complete(&template, &variable, &typed, &known).await;
            if !narrowed.values.contains(value) && !narrowed.more {
                law.fail(format_args!("`{value}` of `{template}` is gone once `{typed}` is typed"));
            }
        }
    }
}

/// Completing a variable that the template does not have gives no values.
pub async fn unknown_variables_have_no_values(fixture: &dyn Fixture) {
    let law = LawCheck::new("unknown_variables_have_no_values", fixture);
    let variable = "libris_contract_unknown";
    for template in law.templates().await {
        let partial = CompletionRequest {
            template: &template,
            variable,
            typed: "",
            known: &BTreeMap::new(),
            limit: Completion::LIMIT,
        };
        match law.source.complete(partial, &Context::default()).await {
            Err(Error::Invalid(_)) => {}
            Ok(completion) if completion.values.is_empty() => {}
            other => law.fail(format_args!("completing `{variable}` of `{template}` gave {other:?}")),
        }
    }
}

/// Each variable of a template, with the preceding variables set to their first completion values.
async fn completion_steps(
    law: &LawCheck<'_>,
    template: &UriTemplate,
) -> Vec<(String, BTreeMap<String, String>)> {
    let mut completion_steps = Vec::new();
    let mut known = BTreeMap::new();
    for variable in template.variables() {
        completion_steps.push((variable.to_owned(), known.clone()));
        let completion = law.complete(template, variable, "", &known).await;
        known.extend(completion.values.into_iter().next().map(|value| (variable.to_owned(), value)));
    }
    completion_steps
}

/// Sets the remaining variables to their first completion values; `None` if a required variable has none.
async fn fill(
    law: &LawCheck<'_>,
    template: &UriTemplate,
    mut known: BTreeMap<String, String>,
) -> Option<BTreeMap<String, String>> {
    for variable in template.variables() {
        if known.contains_key(variable) {
            continue;
        }
        match law.complete(template, variable, "", &known).await.values.into_iter().next() {
            Some(value) => {
                known.insert(variable.to_owned(), value);
            }
            None if template.is_optional(variable) => {}
            None => return None,
        }
    }
    Some(known)
}

async fn expect_readable(law: &LawCheck<'_>, template: &UriTemplate, known: &BTreeMap<String, String>) {
    let values = known.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let expanded = template.expand(&template.variables_from_completions(values));
    let expanded = law.expect_ok(format!("`{template}` filled in with {known:?}"), expanded);
    let what = format!("`{template}` filled in as `{expanded}`");
    let uri = law.expect_ok(&what, Uri::parse(&expanded));
    if law.source.covers(&uri).is_none() {
        law.fail(format_args!("{what} is not covered"));
    }
    match law.source.read(&uri, &Context::default()).await {
        Ok(_) | Err(Error::TooLarge { .. }) => {}
        Err(error) => law.fail(format_args!("{what} cannot be read: {error} ({error:?})")),
    }
}
