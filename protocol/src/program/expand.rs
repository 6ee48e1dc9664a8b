//! The macro that expands the table of ops. It makes `Op`, `OPS` and the families from one row for each op.

/// The specification of a row.
macro_rules! spec {
    (
        $family:ident $name:literal ($($arg:ident = $accepts:expr),*)
        $takes:ident => $gives:ident, $launch:ident, $meaning:literal, $source:ident, $make:expr
    ) => {
        OpSpec {
            name: $name,
            parameters: &[$($accepts.named(stringify!($arg))),*],
            family: Family::$family,
            meaning: $meaning,
            source: $source,
            launch: Some(Launch::$launch),
            signatures: &[Signature { takes: $takes, gives: $gives }],
            makes: Makes::Op($make),
        }
    };
}

/// Expands the table of ops. A family has a heading and, after `names`, names without an instruction of their
/// own. Then it has a row for each op, and after `+` one for each variant of a further enum. A row is
///
/// ```text
/// Variant "name"(argument: type = what it accepts, …) TAKES => GIVES, launch, capacity, "meaning"
///     also [other names];
/// ```
///
/// where launch is a `Launch` and capacity is a `CellCapacity`, which may use the arguments.
macro_rules! ops {
    (
        unnamed { $(
            $un:ident $un_name:literal ($($un_arg:ident : $un_ty:ty = $un_accepts:expr),+)
            $un_takes:ident => $un_gives:ident, $un_launch:ident, $un_capacity:expr, $un_meaning:literal
        ;)* }
        $(
            $family:ident $heading:literal $(names [$($extra:expr),* $(,)?])? { $(
                $op:ident $name:literal $(($($arg:ident : $ty:ty = $accepts:expr),+))?
                $takes:ident => $gives:ident, $launch:ident, $capacity:expr, $meaning:literal
                $(also [$($other:expr),*])?
            ;)* }
            $(+ $choice:ident $choice_doc:literal { $(
                $one:ident $one_name:literal
                $one_takes:ident => $one_gives:ident, $one_launch:ident, $one_capacity:ident, $one_meaning:literal
                $(also [$($one_other:expr),*])?
            ;)* })?
        )*
    ) => {
        /// Families of ops, for tables and help.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Family { $(#[doc = $heading] $family),* }

        impl Family {
            /// All variants, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$family),*];
        }

        impl std::fmt::Display for Family {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$family => $heading),* })
            }
        }

        /// One instruction of a compiled program. Rows, columns and sides count cells.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "an argument means what the row's meaning says of it")]
        pub enum Op {
            $(#[doc = $un_meaning] $un { $($un_arg: $un_ty),+ },)*
            $(
                $(#[doc = $meaning] $op $({ $($arg: $ty),+ })?,)*
                $(#[doc = $choice_doc] $choice($choice),)?
            )*
        }

        $($(
            #[doc = $choice_doc]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub enum $choice { $(#[doc = $one_meaning] $one),* }

            impl $choice {
                /// All variants, in the order of the table.
                pub const ALL: [Self; [$($one_name),*].len()] = [$(Self::$one),*];

                /// Its name in programs, receipts and kernels.
                #[must_use]
                pub fn name(self) -> &'static str {
                    match self { $(Self::$one => $one_name),* }
                }
            }
        )?)*

        /// Every op that a program may name, synonyms included, family by family.
        pub const OPS: &[OpSpec] = &[$(
            $($(OpSpec { family: Family::$family, ..$extra },)*)?
            $(
                $crate::program::expand::spec! {
                    $family $name ($($($arg = $accepts),+)?) $takes => $gives, $launch, $meaning, ARC_DSL,
                    |&[$($($arg,)+)? ..]| Op::$op $({ $($arg: Word::from_number($arg)),+ })?
                },
                $($(OpSpec {
                    family: Family::$family,
                    signatures: &[Signature { takes: $takes, gives: $gives }],
                    ..$other
                },)*)?
            )*
            $($(
                $crate::program::expand::spec! {
                    $family $one_name () $one_takes => $one_gives, $one_launch, $one_meaning, ARC_DSL,
                    |_| Op::$choice($choice::$one)
                },
                $($(OpSpec {
                    family: Family::$family,
                    signatures: &[Signature { takes: $one_takes, gives: $one_gives }],
                    ..$one_other
                },)*)?
            )*)?
        )*];

        /// The instructions that have no name of their own.
        const UNNAMED: &[OpSpec] = &[$(
            $crate::program::expand::spec! {
                Tuple $un_name ($($un_arg = $un_accepts),+)
                $un_takes => $un_gives, $un_launch, $un_meaning, GRIDPOOL,
                |&[$($un_arg,)+ ..]| Op::$un { $($un_arg: Word::from_number($un_arg)),+ }
            },
        )*];

        impl Op {
            /// The row of every instruction, without other names.
            pub fn rows() -> impl Iterator<Item = &'static OpSpec> {
                UNNAMED.iter().chain(OPS).filter(|row| row.launch.is_some())
            }

            /// The op's name as receipts and kernels give it: its name in programs, but that `first`,
            /// `second`, `last` and `nth` are `nth` on tuples and `nth_object` on objects.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$un { .. } => $un_name,)*
                    $(
                        $(Self::$op $({ $($arg: _),+ })? => $name,)*
                        $(Self::$choice(choice) => choice.name(),)?
                    )*
                }
            }

            /// Its arguments, as kernels take them.
            #[must_use]
            pub fn arguments(self) -> Arguments {
                match self {
                    $(Self::$un { $($un_arg),+ } => packed([$($un_arg.number()),+]),)*
                    $(
                        $(Self::$op $({ $($arg),+ })? => packed([$($($arg.number()),+)?]),)*
                        $($(Self::$choice($choice::$one) => [0; ARGUMENTS_MAX],)*)?
                    )*
                }
            }

            /// The largest number of cells of its result's picture.
            pub(super) fn capacity(self) -> CellCapacity {
                use CellCapacity::*;
                match self {
                    $(Self::$un { .. } => $un_capacity,)*
                    $(
                        $(Self::$op $({ $($arg),+ })? => {
                            $($(
                                let $arg = u32::from($arg.number().unsigned_abs());
                                let _ = $arg;
                            )+)?
                            $capacity
                        })*
                        $($(Self::$choice($choice::$one) => $one_capacity,)*)?
                    )*
                }
            }
        }
    };
}

pub(super) use {ops, spec};
