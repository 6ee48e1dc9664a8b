//! Enums whose variants have names, each written once.

/// Makes an enum with `ALL`, `name`, `from_name`, `Display` and serde from its names.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $enum:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $enum {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl $enum {
            /// All variants.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The variant of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use named;
