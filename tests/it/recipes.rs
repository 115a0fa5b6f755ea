//! The YAML of docs/recipes.md, merged as it stands there with boundaries/basic.yaml.

use std::path::Path;

use instance_manager::api::{InstanceGroupSpec, decode_spec};
use instance_manager::cli::input::{InputArgs, load};
use serde_json::Value;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("the file can be read")
}

/// The YAML blocks below a heading.
fn blocks(heading: &str) -> Vec<String> {
    let page = read("docs/recipes.md");
    let chapter = page.split("\n## ").find(|chapter| chapter.starts_with(heading)).expect("the recipe exists");
    let blocks = chapter.split("```yaml\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// The spec of a recipe's group, with the keys of the ConfigMap that the recipe has.
fn merged(keys: &[String], group: &str) -> InstanceGroupSpec {
    let mut config: Value = serde_yaml::from_str(&read("boundaries/basic.yaml")).expect("YAML");
    for text in keys {
        let keys: Value = serde_yaml::from_str(text).expect("YAML");
        config["data"].as_object_mut().expect("data").extend(keys.as_object().expect("keys").clone());
    }
    let input = format!("{}\n---\n{group}", serde_yaml::to_string(&config).expect("YAML"));
    let args = InputArgs { files: vec!["-".into()], ..InputArgs::default() };
    let result = load(&args, &mut input.as_bytes()).expect("the input can be read");
    assert!(result.diagnostics.is_empty(), "{:?}", result.diagnostics);
    let [group] = &result.groups[..] else { panic!("one group") };
    assert!(group.merged.overridden.is_empty(), "{:?}", group.merged.overridden);
    decode_spec(&group.merged.spec).expect("a spec")
}

fn image(spec: &InstanceGroupSpec) -> String {
    let configuration = spec.eks.as_ref().and_then(|eks| eks.configuration.as_ref()).expect("a configuration");
    configuration.image.clone().unwrap_or_default()
}

#[test]
fn conditionals_give_an_image_to_the_groups_with_the_annotation() {
    for (heading, expected) in [("Canary", "ami-0aaaaaaaaaaaaaaaa"), ("An image for one team", "ami-0bbbbbbbbbbbbbbbb")]
    {
        let blocks = blocks(heading);
        let [keys, group] = &blocks[..] else { panic!("{heading}: keys and a group") };
        assert_eq!(image(&merged(std::slice::from_ref(keys), group)), expected);
        let (before, after) = group.split_once("  annotations:\n").expect("annotations");
        let others = format!("{before}{}", after.split_once('\n').expect("one annotation").1);
        assert_eq!(image(&merged(std::slice::from_ref(keys), &others)), "ami-02100000000000001", "another group");
        assert_eq!(image(&merged(&[], group)), "ami-02100000000000001", "without the conditional");
    }
}

/// The second step of the canary: the canary groups keep the image that they have.
#[test]
fn canary_groups_stay_when_the_image_becomes_the_default() {
    let blocks = blocks("Canary");
    let data: Value = serde_yaml::from_str(&read("boundaries/basic.yaml")).expect("YAML");
    let defaults = data["data"]["defaults"].as_str().expect("defaults");
    let moved = defaults.replace("ami-02100000000000001", "ami-0aaaaaaaaaaaaaaaa");
    let keys = serde_yaml::to_string(&serde_json::json!({ "defaults": moved })).expect("YAML");
    assert_eq!(merged(&[keys], &blocks[1]), merged(&blocks[..1], &blocks[1]));
}

#[test]
fn groups_of_the_other_recipes_are_complete() {
    for heading in ["Drain and delete a group", "Move a group"] {
        for group in blocks(heading) {
            let spec = merged(&[], &group);
            assert_eq!(image(&spec), "ami-02100000000000001", "{heading}");
            assert!(spec.eks.is_some_and(|eks| eks.min_size.is_some() && eks.max_size.is_some()), "{heading}");
        }
    }
}
