//! The machine, the versions and the time of measurements.

use serde_json::Value;

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn newest<'r>(sections: impl Iterator<Item = &'r Value>) -> Option<&'r Value> {
    sections.max_by_key(|section| word(&section["taken_at"]))
}

fn machine(section: &Value) -> String {
    let machine = &section["machine"];
    let [cores, cpu, memory] = ["cores", "cpu", "memory_gib"].map(|name| word(&machine[name]));
    format!("{cores} cores, {cpu}, {memory} GiB, Linux")
}

/// For the page: all versions, and the time of each section.
pub(crate) fn in_full(results: &Value) -> String {
    let sections = results["sections"].as_object();
    let Some(newest) = newest(sections.into_iter().flat_map(|sections| sections.values())) else {
        return String::new();
    };
    let versions = newest["versions"].as_object().into_iter().flatten();
    let versions: Vec<String> = versions.map(|(name, version)| format!("{name} {}", word(version))).collect();
    let taken = sections.into_iter().flatten().map(|(name, section)| {
        let (at, load) = (word(&section["taken_at"]), word(&section["machine"]["load_after"]));
        format!("`{name}` {at} ({load})")
    });
    format!(
        "Machine: {}. Versions: {}.\n\nMeasured at (UTC), with the load of the machine just after: {}.\n",
        machine(newest),
        versions.join("; "),
        taken.collect::<Vec<_>>().join(", ")
    )
}

/// For a plot, in two lines.
pub(crate) fn in_short(results: &Value, sections: &[&str]) -> Vec<String> {
    let taken = || sections.iter().map(|section| &results["sections"][section]).filter(|section| section.is_object());
    let Some(newest) = newest(taken()) else { return Vec::new() };
    let days = taken().map(|section| word(&section["taken_at"]).chars().take("2026-01-01".len()).collect::<String>());
    let mut days: Vec<String> = days.collect();
    days.sort_unstable();
    days.dedup();
    let named = [
        ("rustc", "rustc"),
        ("ActingWeb", "actingweb"),
        ("boto3", "boto3"),
        ("DynamoDB Local", "dynamodb-local"),
        ("dynoxide", "dynoxide-rs"),
        ("aws-sdk-dynamodb", "aws-sdk-dynamodb"),
    ];
    let versions = named.map(|(name, key)| {
        let version = word(&newest["versions"][key]);
        format!("{name} {}", version.split(' ').next().unwrap_or_default())
    });
    vec![format!("{}; taken {}", machine(newest), days.join(", ")), versions.join(", ")]
}
