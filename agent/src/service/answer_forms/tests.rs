//! Which forms a model's answers are read in.

use super::*;

/// Those of a model that writes as Qwen3 does.
pub(crate) fn mk_forms() -> AnswerForms {
    AnswerForms {
        reasoning: Some(Form {
            form: ReasoningForm::Qwen3,
            special_ids: vec![7],
        }),
        tools: Some(Form {
            form: ToolForm::Hermes,
            special_ids: vec![5, 7],
        }),
        template_takes_tools: true,
    }
}

#[test]
fn only_marks_of_forms_that_are_read_have_text() {
    let forms = mk_forms();
    assert_eq!(forms.of_request(true, true).special_ids(), [5, 7]);
    assert_eq!(forms.of_request(true, false).special_ids(), [7]);
    assert!(forms.of_request(false, false).special_ids().is_empty());
}

#[test]
fn channels_are_read_even_where_no_reasoning_is_shown() {
    let mut forms = mk_forms();
    let apart = |forms: &AnswerForms| forms.of_request(false, false).reasoning.is_some();
    assert!(!apart(&forms));
    forms.reasoning.as_mut().unwrap().form = ReasoningForm::Harmony;
    assert!(apart(&forms));
}

#[test]
fn a_flag_names_a_form_or_leaves_it_to_the_template() {
    let wanted = |given: &str| given.parse::<WantedForm<ToolForm>>();
    assert_eq!(wanted("auto").unwrap(), WantedForm::OfTemplate);
    assert_eq!(wanted("none").unwrap(), WantedForm::None);
    assert_eq!(wanted("qwen").unwrap(), WantedForm::Named(ToolForm::Qwen25));
    assert!(
        wanted("no_such_form")
            .unwrap_err()
            .to_string()
            .contains("qwen3_coder")
    );
    let of_template = Some(ToolForm::Mistral);
    assert_eq!(WantedForm::OfTemplate.resolve(of_template), of_template);
    assert_eq!(WantedForm::None.resolve(of_template), None);
}
