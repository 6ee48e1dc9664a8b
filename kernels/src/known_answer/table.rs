//! The programs of the known-answer test and the digests of their right results. Data only.

use gridpool_protocol::program::Ties;

use super::KnownAnswer;

const fn answer(text: &'static str, ties: Ties, digest: &'static str) -> KnownAnswer {
    KnownAnswer { text, ties, digest }
}

/// Programs that together use every op, both tie modes, and ops after ops.
pub const KNOWN_ANSWERS: &[KnownAnswer] = &[
    answer(
        "identity",
        Ties::Cpython,
        "ebb51a4660b93944c4df990c00ce88bfeadc132c5bc1a1dd3a60d7f921e8ded1",
    ),
    answer(
        "rot90",
        Ties::Cpython,
        "61d70a2a079f3bfc537ce4335dbf45b8af2b5aa069465eb5e289fe670c4c860c",
    ),
    answer(
        "rot180",
        Ties::Cpython,
        "deb37a42b1bf1dac78c98da4cd67a9ac60d690d114427ae0e9d13a6dd86d1992",
    ),
    answer(
        "rot270",
        Ties::Cpython,
        "0ab2caf2e066fa05725d1dd3f2bc16bc57c6f25874a46d21a10c91903b1fd713",
    ),
    answer(
        "hmirror",
        Ties::Cpython,
        "2d481ede5304febe0c072d68640888f134284ce730a889857bf02e004773b1be",
    ),
    answer(
        "vmirror",
        Ties::Cpython,
        "9760b598f7e39d7e054ad93bda2f7e5e68bc13eb4177bf9c985a68788975dea5",
    ),
    answer(
        "dmirror",
        Ties::Cpython,
        "6c909a602e26cef7fbaaf0781a29dd3d6c158e670d50326a88bad88a86e27e66",
    ),
    answer(
        "cmirror",
        Ties::Cpython,
        "8e02c0bbfff7ba8110387b848e5bc60ad8dd228653af19f7e89ba600eec2a6c5",
    ),
    answer(
        "replace(0, 5)",
        Ties::Cpython,
        "d74032de02138a787650e79e209e62d28fa38dbad0cec7287ec48ffa5867b98d",
    ),
    answer(
        "switch(1, 2)",
        Ties::Cpython,
        "ff9f246e738a32a98b3a0cf96133adfae1d316380a45e28aba7408b8dfde84c9",
    ),
    answer(
        "mostcolor",
        Ties::Cpython,
        "ec6b995fe307be4fcdf3c42f67385f02d00f4a1a8b416de3b78ecb310f9b2b4d",
    ),
    answer(
        "leastcolor",
        Ties::Cpython,
        "b24655bb94f0039d3433b9003bdb767a33e060b2565c7d86b14a33d81848cb15",
    ),
    answer(
        "palette",
        Ties::Cpython,
        "5271f1147ffc87ed5f251e5b937f59c344c6ec496f46ed7cadb84d6b61c985d8",
    ),
    answer(
        "numcolors",
        Ties::Cpython,
        "9a0af61e9a470179c162e6f59ce7bc5dc05f0651cd851bcac18ab3aae2522840",
    ),
    answer(
        "colorcount(2)",
        Ties::Cpython,
        "f884e5a482c8b5d9e2be1fa018aa08f983e1b880829032a1a8ba47bb754c6e96",
    ),
    answer(
        "o_g(0)",
        Ties::Cpython,
        "e70335713c17cd39abf65d34687242ec5cf288cad11880137bf423e6cf0208c2",
    ),
    answer(
        "o_g(1)",
        Ties::Cpython,
        "e49113f75e16aec9435f2051815ea27312c0708ee8c0d55e980cfaeb0eb85c81",
    ),
    answer(
        "o_g(2)",
        Ties::Cpython,
        "e70335713c17cd39abf65d34687242ec5cf288cad11880137bf423e6cf0208c2",
    ),
    answer(
        "o_g(3)",
        Ties::Cpython,
        "1b5183f25d03f3acab71883039cd926bc40179b42814c447f5bd3ec641f8a9d7",
    ),
    answer(
        "o_g(4)",
        Ties::Cpython,
        "fabe92a67e628fefdf7fbf29196b0fc4e05bf43ff62f0e44df61e734459db959",
    ),
    answer(
        "o_g(5)",
        Ties::Cpython,
        "670272482f255a03a21dacbbf658d01995779443622d794a4754f4ecc22dd568",
    ),
    answer(
        "o_g(6)",
        Ties::Cpython,
        "f68c2835ec9f853779424bbfb35f3ab3298d8f3359036fdabc571016b9f1f5cb",
    ),
    answer(
        "o_g(7)",
        Ties::Cpython,
        "83986466316bfd1377eadb7ade98d36a44836df7932ba9e72d7aa6274a8b5e33",
    ),
    answer(
        "mostcolor",
        Ties::Lowest,
        "b28ba8cc71a5e48a7f05a73d473d2ed573233c0ff9d30e68de6c80d0171355bc",
    ),
    answer(
        "leastcolor",
        Ties::Lowest,
        "3bc1102976b67d51f188affa4ea8bf01b8944531295e29a32a41c43468747d0c",
    ),
    answer(
        "palette",
        Ties::Lowest,
        "418adfa4e84514206e55c68bd933b93c15d2949cecf5ef465bcf2db165b8223d",
    ),
    answer(
        "o_g(5)",
        Ties::Lowest,
        "6a6267771863698cfe15fc1800143502bae5776ac65aaf541db85c73dbf87636",
    ),
    answer(
        "rot90 | switch(0, 8) | palette",
        Ties::Cpython,
        "37bce412893852613db5f7855a9c6d65dda4d3104288bf9db4a7818d22897168",
    ),
    answer(
        "hmirror | replace(3, 0) | rot270 | objects(true, true, true)",
        Ties::Cpython,
        "03d034b38b81b45b3e8da0255a7e11570fa817e280ae748fc207e46fe8cd87f3",
    ),
];
