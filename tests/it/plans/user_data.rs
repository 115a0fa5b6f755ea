//! User data of given specs, for the test that gives it to the software of nodes (`tests/e2e/test_user_data.py`).

use super::*;

/// Reads specs from the file that `USER_DATA_SPECS` names, as `[{"spec", "osFamily"}]`, and writes what becomes of each to
/// `USER_DATA_RESULTS`: `[{"userData": base64} | {"errors": [text]}]`.
#[test]
#[ignore = "tests/e2e/test_user_data.py runs it"]
fn user_data_of_given_specs() {
    let file = |name| std::env::var_os(name).unwrap_or_else(|| panic!("{name} names a file"));
    let specs: Vec<Value> =
        serde_json::from_slice(&std::fs::read(file("USER_DATA_SPECS")).expect("the specs")).expect("JSON");
    let results: Vec<_> = specs
        .iter()
        .map(|given| match user_data(given) {
            Ok(base64) => json!({ "userData": base64 }),
            Err(errors) => json!({ "errors": errors }),
        })
        .collect();
    std::fs::write(file("USER_DATA_RESULTS"), serde_json::to_vec(&results).expect("JSON")).expect("the results");
}

/// The user data in base64, or the errors of the spec.
fn user_data(given: &Value) -> Result<String, Vec<String>> {
    let spec =
        decode_spec(&given["spec"]).map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let id = common::group_id(3, timestamp(LONG_AGO));
    let annotations = common::annotations(&[("os-family", given["osFamily"].as_str().expect("a family"))]);
    let errors = |errors: Vec<SpecError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    let desired = desired::parse(&id, &annotations, &spec).map_err(errors)?;
    let resolved = resolve(desired, &references(), NameForm::Plain).map_err(errors)?;
    Ok(resolved.template_data.user_data.expose().clone())
}
