//! Errors of rendering user data.

/// Why user data cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// More bytes than EC2 accepts.
    #[error(
        "user data has {size} bytes {how}, but at most {limit} are accepted: shorten {largest} ({largest_size} bytes, \
         the largest part), for example by fetching it from S3 at boot"
    )]
    TooLarge {
        /// Total size in bytes.
        size: usize,
        /// Accepted size in bytes.
        limit: usize,
        /// Whether the size is before or after compression.
        how: &'static str,
        /// The largest field.
        largest: String,
        /// Size of that field in bytes.
        largest_size: usize,
    },
    /// A `NodeConfigYaml` stage that is not YAML.
    #[error("{stage} must be the YAML of one NodeConfig: {detail} (line {line}); correct it")]
    NotYaml {
        /// Path of the stage in the spec.
        stage: String,
        /// The line within the stage, from 1.
        line: usize,
        /// What is wrong, without content.
        detail: &'static str,
    },
    /// A `NodeConfigYaml` stage that nodeadm would not decode.
    #[error("{stage} is not a NodeConfig that nodeadm reads: {detail}")]
    NotNodeConfig {
        /// Path of the stage in the spec.
        stage: String,
        /// What is wrong with the remedy, without content.
        detail: &'static str,
    },
    /// A Bottlerocket stage that is not TOML.
    #[error("{stage} must be TOML on bottlerocket: it does not parse (line {line}); correct it")]
    NotToml {
        /// Path of the stage in the spec.
        stage: String,
        /// The line within the stage, from 1.
        line: usize,
    },
    /// Bottlerocket stages that set keys which the controller sets.
    #[error(
        "the stages of spec.eks.configuration.userData together with the rendered \
         [settings.kubernetes] are not valid TOML: remove every table and key that is \
         defined twice"
    )]
    TomlConflict,
    /// A stage that is not UTF-8 where it must be.
    #[error("{stage} must be UTF-8 text on this os-family: write it as text, or as base64 of text")]
    NotText {
        /// Path of the stage in the spec.
        stage: String,
    },
    /// A Windows stage that is not a script.
    #[error("{stage} is compressed or binary, and EC2Launch runs PowerShell scripts only: write it as plain text")]
    Binary {
        /// Path of the stage in the spec.
        stage: String,
    },
    /// A Windows stage that would end the script around it.
    #[error("{stage} contains the tag </powershell>, which would end the script that joins the node: remove it")]
    EndsScript {
        /// Path of the stage in the spec.
        stage: String,
    },
    /// A value that would break the node or its quoting.
    #[error("{field}: {value:?} {rule}")]
    BadValue {
        /// Path of the field in the spec, or which value of the cluster it is.
        field: &'static str,
        /// The offending value.
        value: String,
        /// The broken rule with the remedy, as the end of a sentence.
        rule: &'static str,
    },
}
