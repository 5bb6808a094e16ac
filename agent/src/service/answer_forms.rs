//! The forms in which the served model writes reasoning and calls of tools, found once at start.

use pd_answers::{
    AnswerReader, Prompt, ReasoningForm, ThoughtFrame, ToolForm, ToolTypes, UnknownForm,
};
use pd_engine::text::{ChatTemplate, Tokenizer};
use std::str::FromStr;

/// A form as a flag gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantedForm<T> {
    /// The one that the model's chat template is written for.
    OfTemplate,
    /// Answers stay one text.
    None,
    Named(T),
}

/// A form, and the special tokens that its marks are.
#[derive(Clone, Debug)]
struct Form<T> {
    form: T,
    special_ids: Vec<u32>,
}

/// How answers of the served model are taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerForms {
    reasoning: Option<Form<ReasoningForm>>,
    tools: Option<Form<ToolForm>>,
    template_takes_tools: bool,
}

/// How the answers to one request are taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadForms<'a> {
    reasoning: Option<&'a Form<ReasoningForm>>,
    tools: Option<&'a Form<ToolForm>>,
}

/// Why a model cannot be given tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toolless {
    Template,
    Form,
}

// === impl WantedForm ===

impl<T> WantedForm<T> {
    fn resolve(self, of_template: Option<T>) -> Option<T> {
        match self {
            Self::OfTemplate => of_template,
            Self::None => None,
            Self::Named(form) => Some(form),
        }
    }
}

impl<T: FromStr<Err = UnknownForm>> FromStr for WantedForm<T> {
    type Err = UnknownForm;

    fn from_str(given: &str) -> Result<Self, UnknownForm> {
        match given {
            "auto" => Ok(Self::OfTemplate),
            "none" => Ok(Self::None),
            name => Ok(Self::Named(name.parse()?)),
        }
    }
}

// === impl AnswerForms ===

impl AnswerForms {
    pub(crate) fn new(
        reasoning: WantedForm<ReasoningForm>,
        tools: WantedForm<ToolForm>,
        template: Option<&ChatTemplate>,
        tokenizer: &Tokenizer,
    ) -> Self {
        let source = template.map(ChatTemplate::source_without_tools);
        let with_tools = template.and_then(ChatTemplate::source_with_tools);
        let of_source = source.as_deref().and_then(ReasoningForm::of_template);
        let reasoning = reasoning.resolve(of_source);
        let of_source = with_tools.as_deref().and_then(ToolForm::of_template);
        let tools = tools.resolve(of_source);
        Self {
            reasoning: reasoning.map(|form| Form {
                form,
                special_ids: tokenizer.special_among(&form.all_marks()),
            }),
            tools: tools.map(|form| Form {
                form,
                special_ids: tokenizer.special_among(&form.all_marks()),
            }),
            template_takes_tools: with_tools.is_some(),
        }
    }

    /// Writes the names of the forms to the log.
    pub(crate) fn log(&self) {
        let reasoning = self.reasoning.as_ref().map_or("none", |f| f.form.name());
        let tools = self.tools.as_ref().map_or("none", |f| f.form.name());
        tracing::info!(
            reasoning_parser = reasoning,
            tool_call_parser = tools,
            "chose how answers are taken apart"
        );
    }

    /// How the model writes calls.
    ///
    /// # Errors
    /// When the model cannot see tools, or its calls could not be read.
    pub(crate) fn tool_form(&self) -> Result<ToolForm, Toolless> {
        match &self.tools {
            _ if !self.template_takes_tools => Err(Toolless::Template),
            None => Err(Toolless::Form),
            Some(Form { form, .. }) => Ok(*form),
        }
    }

    /// What the model may think ahead of an answer behind `prompt`.
    pub(crate) fn thought(&self, prompt: Prompt<'_>) -> Option<ThoughtFrame> {
        self.reasoning.as_ref()?.form.frame(prompt)
    }

    /// The forms that are looked for in the answers to a request. Channels are always read: they are no text.
    pub(crate) fn of_request(&self, reasoning: bool, tools: bool) -> ReadForms<'_> {
        let reasoning_form = self.reasoning.as_ref();
        ReadForms {
            reasoning: reasoning_form.filter(|f| reasoning || f.form == ReasoningForm::Harmony),
            tools: self.tools.as_ref().filter(|_| tools),
        }
    }
}

// === impl ReadForms ===

impl ReadForms<'_> {
    pub(crate) fn reader(self, types: ToolTypes, prompt: Prompt<'_>) -> AnswerReader {
        let reasoning = self.reasoning.map(|f| f.form);
        AnswerReader::new(reasoning, self.tool_form(), types, prompt)
    }

    pub(crate) fn tool_form(self) -> Option<ToolForm> {
        self.tools.map(|f| f.form)
    }

    /// The special tokens without whose text the forms cannot be seen.
    pub(crate) fn special_ids(self) -> Vec<u32> {
        let of_reasoning = self.reasoning.map(|f| &f.special_ids);
        let of_tools = self.tools.map(|f| &f.special_ids);
        let mut ids: Vec<u32> = of_reasoning
            .into_iter()
            .chain(of_tools)
            .flatten()
            .copied()
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

#[cfg(test)]
pub(crate) mod tests;
