//! The programs of the known-answer test and the digests of their right results. Data only.

use gridpool_protocol::program::Ties;

use super::KnownAnswer;

const fn cpython(text: &'static str, digest: &'static str) -> KnownAnswer {
    KnownAnswer { text, ties: Ties::Cpython, digest }
}

const fn lowest(text: &'static str, digest: &'static str) -> KnownAnswer {
    KnownAnswer { text, ties: Ties::Lowest, digest }
}

/// Programs that together use every op, both tie modes, and ops after ops, on grids and on pairs.
pub const KNOWN_ANSWERS: &[KnownAnswer] = &[
    cpython("identity", "ebb51a4660b93944c4df990c00ce88bfeadc132c5bc1a1dd3a60d7f921e8ded1"),
    cpython("rot90", "61d70a2a079f3bfc537ce4335dbf45b8af2b5aa069465eb5e289fe670c4c860c"),
    cpython("rot180", "deb37a42b1bf1dac78c98da4cd67a9ac60d690d114427ae0e9d13a6dd86d1992"),
    cpython("rot270", "0ab2caf2e066fa05725d1dd3f2bc16bc57c6f25874a46d21a10c91903b1fd713"),
    cpython("hmirror", "2d481ede5304febe0c072d68640888f134284ce730a889857bf02e004773b1be"),
    cpython("vmirror", "9760b598f7e39d7e054ad93bda2f7e5e68bc13eb4177bf9c985a68788975dea5"),
    cpython("dmirror", "6c909a602e26cef7fbaaf0781a29dd3d6c158e670d50326a88bad88a86e27e66"),
    cpython("cmirror", "8e02c0bbfff7ba8110387b848e5bc60ad8dd228653af19f7e89ba600eec2a6c5"),
    cpython("replace(0, 5)", "d74032de02138a787650e79e209e62d28fa38dbad0cec7287ec48ffa5867b98d"),
    cpython("switch(1, 2)", "ff9f246e738a32a98b3a0cf96133adfae1d316380a45e28aba7408b8dfde84c9"),
    cpython("mostcolor", "ec6b995fe307be4fcdf3c42f67385f02d00f4a1a8b416de3b78ecb310f9b2b4d"),
    cpython("leastcolor", "b24655bb94f0039d3433b9003bdb767a33e060b2565c7d86b14a33d81848cb15"),
    cpython("palette", "5271f1147ffc87ed5f251e5b937f59c344c6ec496f46ed7cadb84d6b61c985d8"),
    cpython("numcolors", "9a0af61e9a470179c162e6f59ce7bc5dc05f0651cd851bcac18ab3aae2522840"),
    cpython("colorcount(2)", "f884e5a482c8b5d9e2be1fa018aa08f983e1b880829032a1a8ba47bb754c6e96"),
    cpython("o_g(0)", "e70335713c17cd39abf65d34687242ec5cf288cad11880137bf423e6cf0208c2"),
    cpython("o_g(1)", "e49113f75e16aec9435f2051815ea27312c0708ee8c0d55e980cfaeb0eb85c81"),
    cpython("o_g(2)", "e70335713c17cd39abf65d34687242ec5cf288cad11880137bf423e6cf0208c2"),
    cpython("o_g(3)", "1b5183f25d03f3acab71883039cd926bc40179b42814c447f5bd3ec641f8a9d7"),
    cpython("o_g(4)", "fabe92a67e628fefdf7fbf29196b0fc4e05bf43ff62f0e44df61e734459db959"),
    cpython("o_g(5)", "670272482f255a03a21dacbbf658d01995779443622d794a4754f4ecc22dd568"),
    cpython("o_g(6)", "f68c2835ec9f853779424bbfb35f3ab3298d8f3359036fdabc571016b9f1f5cb"),
    cpython("o_g(7)", "83986466316bfd1377eadb7ade98d36a44836df7932ba9e72d7aa6274a8b5e33"),
    lowest("mostcolor", "b28ba8cc71a5e48a7f05a73d473d2ed573233c0ff9d30e68de6c80d0171355bc"),
    lowest("leastcolor", "3bc1102976b67d51f188affa4ea8bf01b8944531295e29a32a41c43468747d0c"),
    lowest("palette", "418adfa4e84514206e55c68bd933b93c15d2949cecf5ef465bcf2db165b8223d"),
    lowest("o_g(5)", "6a6267771863698cfe15fc1800143502bae5776ac65aaf541db85c73dbf87636"),
    cpython(
        "rot90 | switch(0, 8) | palette",
        "37bce412893852613db5f7855a9c6d65dda4d3104288bf9db4a7818d22897168",
    ),
    cpython(
        "hmirror | replace(3, 0) | rot270 | objects(true, true, true)",
        "03d034b38b81b45b3e8da0255a7e11570fa817e280ae748fc207e46fe8cd87f3",
    ),
    cpython(
        "crop(0, 1, 2, 40)",
        "a02598b22c61c744bec31d0ae23f0ca6e1e767b0be99e069c69ef811f3bde6a1",
    ),
    cpython("tophalf", "5db3a1425087fd5ce2a8764cf32147aef72144fb58e1d287890cef20e12acf70"),
    cpython("bottomhalf", "69d7dcb59cbfc7df82d169c3b9a7cb14cf622beafcaeacec449ddb1226c954b7"),
    cpython("lefthalf", "4cce7e2925caccb8d30b374018739a48bcdf27d705a63057f1cf6e8c511d5dc4"),
    cpython("righthalf", "18a9f22e3228988ba6233dfbd7ade3bb4da76d71c3487dc2f31cfedfafde182f"),
    cpython("trim", "e930ef8ea7785ec5caf87093cfaeb70484fed93ff93e98630c0e040da083e123"),
    cpython("compress", "629bcf787344dd424e43825bf95d7f2790c45e5c16d5f42f7f9db6bab353e80b"),
    cpython("upscale(2)", "eea4f72c03e4f0baa81c2f37187112f00c225271bafb1fe45bb3a8b263675874"),
    cpython(
        "hupscale(3) | vupscale(2)",
        "0cf8398cbef6cbab4ff770666d47729069aa6cbef046322bcb5b04f8d4de3b8c",
    ),
    cpython(
        "downscale(2) | vupscale(3)",
        "cda931b8e20c407754b74f63514134069e3879859ac7f23e2dab1bf629f445b5",
    ),
    cpython("canvas(3, 5, 7)", "8db1d6dce9307121dc60830637e6018a1ee746c04d060010beda48ef98a04d3a"),
    cpython("hsplit(3)", "a2221a5c37e2fd90b5c11fee101499ecc7585e76428af573c2c0615d3009250f"),
    cpython(
        "vsplit(2) | apply(o_g(5))",
        "26d9ba258c69d6c28ad4a142724d75e474586b875d8e55a6fd1cb6fd17d537d6",
    ),
    cpython(
        "hsplit(2) | apply(rot90) | vconcat",
        "5418bfc5a6315db29ff27e5766d77fc739d76e217314e3ff1d0d095641dbfc21",
    ),
    cpython(
        "vsplit(3) | last | hmirror",
        "1386ddb0b72d5041abce51d91fb250ea4eb453eb90221eb695eab93852272a44",
    ),
    cpython("partition", "93b93d7b9eb415d6ba6524916b7c5856704b450a6163bc32cbe4f2ea55db7fc4"),
    cpython("fgpartition", "a544a89572852ddb1db494e3b742f04e1d9f69e9936488b5e91dd902b2e62c7a"),
    cpython(
        "o_g(5) | colorfilter(2)",
        "77ce181e2d28dd0f65380e7f9b5b1ba31a9e9559f1987ff71575d17508da1fab",
    ),
    cpython(
        "o_g(1) | sizefilter(1) | merge",
        "359eee85d08cda1bf24ba730248fb2323d5204ac48c02fd4679d9e466b004fe8",
    ),
    cpython(
        "o_g(5) | argmax(size)",
        "e087ee15a21d003643abdceba99e0d4449542e204c8700c6d0ddc5be0e1c9aa7",
    ),
    cpython(
        "o_g(7) | argmin(width) | subgrid",
        "4cdfda8f5d3db25c6a0d61709d9d71088fbb95e9a81d909516bd0e860c39d5e7",
    ),
    cpython(
        "fgpartition | argmax(rightmost)",
        "df2a71d04011b5c4b26b24fed7ede6adcfb1fdf2caa481c4e2e3deba3a1a6a2a",
    ),
    cpython(
        "o_g(1) | argmin(color)",
        "f0a33d1d4f10e4e2c000eb91e0bd484a6f0c4106516bd305fa6e31d9605fc058",
    ),
    cpython("o_g(4) | nth(3)", "027f9e96a10d1f21411ecebebc1d24f61ad8afdfeb480a63a19782fcb4123af8"),
    cpython(
        "o_g(5) | last | upscale(2)",
        "1f4ca36576666d2aa25f5d7bfe7c93b4f3b1181e47e74858643ebff8a11dc6b1",
    ),
    cpython(
        "o_g(5) | first | hmirror | paint",
        "0b653f8ff47d6495293b25213c956c2d8c8478744c0bd1d72c005ee81a45bd9d",
    ),
    cpython("o_g(7) | size", "e7229ff970ded8baf8d69faa6e2a2ad161ef377ed3e8c45fcd8f392cdd90f704"),
    cpython(
        "fgpartition | merge | size",
        "f268197439af91bf77ce4084c3b7adc733efc377b6378653f41b6c99d7e113a8",
    ),
    cpython("ofcolor(2)", "df27593950a47bf274fb1cec450c26c50511be5ed6509c46fb86554bfd8e8eca"),
    cpython("asindices | size", "dd97d510a3c30a19c0cf1b3f9f9b868f854d6743e3f15cd18c94151c325784a8"),
    cpython(
        "asobject | shift(-1, 3) | toobject",
        "d0c26c6cdc1896aed09a8ef7680987b238f5ec21c8d92176797d7119fa13dd0f",
    ),
    cpython(
        "fgpartition | first | toindices",
        "e4eff032de25ff490c7b91f3c6a8887fcc4bf4fada06a7571ed49533c1a33da2",
    ),
    cpython(
        "ofcolor(1) | recolor(6) | shift(2, -200)",
        "27ed2fe8ed8b2c850617d2c73990f027982824baed35ba2bb5f88fffbe12fc88",
    ),
    cpython(
        "o_g(3) | argmax(height) | cmirror | normalize",
        "7bb404ba7ac80ca3e32d384cf40df030758000c9fdc87b259c8712c60049b2ac",
    ),
    cpython(
        "o_g(5) | argmax(size) | backdrop",
        "a1531be2a39f68940e23ddf1838370142404e32c8cd3498ffe590ba07f830be2",
    ),
    cpython(
        "o_g(5) | argmax(size) | delta",
        "8673529bce7e3274e1c95ece285aebc198b075e833de253ac5103811fc7850f9",
    ),
    cpython(
        "o_g(5) | argmax(size) | box",
        "065d4dd1234a85b6ecb7ea7637be7946fd2f1cbdc3880e392ea75e840003af82",
    ),
    cpython(
        "o_g(5) | argmax(size) | inbox",
        "59ca60e6f6af1a8da66ccb76a20c3e2ef58fef708a1c0bb7b1fd6ec8fcb9d2da",
    ),
    cpython(
        "o_g(5) | argmax(size) | outbox",
        "e9a1cee5a7df2c249bec2b8b85bcc67be79a4ad27d81a4d53bc5cde914155902",
    ),
    cpython(
        "fgpartition | last | corners",
        "7fb1fd40d306bea108f46fca9a7ac49cd14d51f3804e9ce8c5deda475bc2b43c",
    ),
    cpython(
        "ofcolor(1) | outbox | fill(4)",
        "ab7ce3e188e8dcb3d1ee0055a481138cff649bd80bd60abd79cb3f82bb2f7fcd",
    ),
    cpython(
        "ofcolor(0) | delta | underfill(9)",
        "d460c3992b07c060ac4b5a23c89cad1c98ab2ba5099a1f6961ea26e4a6d1884d",
    ),
    cpython(
        "fgpartition | first | cover",
        "7ff62dc8fd8d45ba59a254214670f2f43f2fd3026a0396cbc3afaacb1b71d813",
    ),
    cpython(
        "o_g(5) | argmax(size) | shift(1, 1) | underpaint",
        "d511817b8938fece25df291e0a9008caa316eb0be7ea87bb840f19b3bcc2ea66",
    ),
    cpython(
        "o_g(7) | argmax(size) | move(1, -2)",
        "a0609b052e835abdbac7bbf5dd3917ff1fcf9c3c52e6d7a71c380d1e33d60828",
    ),
    cpython(
        "ofcolor(2) | shift(-1, 0) | subgrid",
        "89d84702f35ff25a91a489eac4f3c7173f2de9bfdcb42a7df480d5da924b0de4",
    ),
    cpython(
        "o_g(5) | argmax(size) | box | fill(6) | rot90 | o_g(5)",
        "18aebcdc39c89be02f1cd4c56722442cd29f47d0883e942678aa167fd6ba6e6e",
    ),
    cpython("trim | o_g(6)", "1e2f9c68502ba47b83cc999388742ed2f9a9fede39ea98e4c484925955ee846c"),
    cpython("height", "b6c12438b310b9ef7ee9db88f0f6d1df080ee330971cde3480d636348ed99478"),
    cpython(
        "o_g(5) | argmax(size) | width",
        "247cd033a2f7f205cf8deeff3398c6a07e5274b8becdea0caa93f09c9b813bb7",
    ),
    cpython(
        "o_g(5) | last | shape",
        "d66c3135372463c00cb6fe61048b94fd7848e8fdcc607752e68703bf67e419c1",
    ),
    cpython(
        "ofcolor(2) | uppermost",
        "0c47a9e4d20795f520ccd0785f73f07a2c7ad0f55a2828e5c7af7d0f2950b1f4",
    ),
    cpython(
        "ofcolor(2) | lowermost",
        "d0334f2636b66effe7d09243d3ff62702e68f036c3ac14fa1eff7cd276a79bec",
    ),
    cpython(
        "ofcolor(2) | leftmost",
        "d09b9cbcd9b2da986c6bfe35fcb67576309a838c8a8c5fc2538547b816e7a402",
    ),
    cpython(
        "ofcolor(2) | rightmost",
        "d9b85b4b71383015d949ad2827510e726a30149500b680b9ccd4f43cdaffc588",
    ),
    cpython(
        "o_g(5) | first | shift(-3, 4) | ulcorner",
        "bc109aaf4376b3030f23f4dbd8e92ff5f283c3a669dff90d4cb26ea936ba3266",
    ),
    cpython(
        "o_g(5) | first | urcorner",
        "cc79a31fdb57d01fa838fcaf04c8505525b1859482fedad7232cedb402cd00f8",
    ),
    cpython(
        "o_g(5) | first | llcorner",
        "972c07107c6439fa32c9e3d9a1edd765c0bab43e30f1e51a4983eb8df3b7ed35",
    ),
    cpython(
        "o_g(5) | first | lrcorner",
        "30cb1ea669a8b76a23bde02ccf9131fd4464b86d7dc7d45882fbef98cccf2297",
    ),
    cpython(
        "fgpartition | last | center",
        "bb0283fce5e74db92181dc1bf7674244165940f7f0bb01f20c6cc94cd0aafd73",
    ),
    cpython(
        "fgpartition | last | shift(-9, -9) | centerofmass",
        "f07880e9e8e8d55c6920aba3585f27e3a7ff3d5a8727f5c6a4f3b7d71fff88a0",
    ),
    cpython(
        "o_g(1) | argmax(size) | color",
        "83e97b8aedf300b2d160b855240b2e6e73a030b5d0aec30a52c26d861c217e97",
    ),
    cpython("square", "423e0d74a0bb537c8b0abc92bdf51ec6ddba487bbe7572abe2514cc1e5631f05"),
    cpython(
        "o_g(5) | last | portrait",
        "0ebbfcb45b373e8ae46a3601a9020900fa670d391d1f3107883c6066e0c77b55",
    ),
    cpython(
        "o_g(5) | first | hline",
        "7162eed8e9ce0f601fd118aea7a927a87fc48616d747bb4432a8c0546964a7cc",
    ),
    cpython(
        "o_g(5) | first | vline",
        "620b8a5302ce02ab4e2736450f48effc7e2ba1db194cec34f8830e8a5d7f3e08",
    ),
    cpython(
        "o_g(5) | first | palette",
        "8e9af5e51c7882450f2cd89fdab081a290b2e5a43ceae287789e01a2a66d5e60",
    ),
    cpython("first", "9355a36b2e91ac4cbb35d93ca89aba52fc777e0dab85cd92b0d6c63e999ad00c"),
    cpython(
        "second | replace(2, 3)",
        "2eb0cf49ccca1d819770f19e573a17b85dd019142907d36c0c45f927e9517bd9",
    ),
    cpython("hconcat", "623fd8080ea0c74a079c2a02cdcf3923d92c38c23c72624d7d8d56a3fbdbb69d"),
    cpython("vconcat", "5393165dc33061d5dd2bdcb63f8bd25381d5bcb89dfe64fa87253024c2ebc89d"),
    cpython("cellwise(7)", "f46695d72cc4fa772a84681573d64cbc936f1546a47a4c8980fe901ea7e15f22"),
    cpython(
        "apply(rot90 | switch(0, 2))",
        "89f0596f587892cc2395cb93b36ecf0f5d63724c18f60bbf2ee8f536e071875a",
    ),
    cpython("apply(o_g(5))", "ddac42b3d76cf4c2057732cebf2f5da2b38aea9761530c7dee198871273628d3"),
    cpython("apply(mostcolor)", "2eff41e0e95136c59e2895b42fae0100277137bf1d7d1270aac4facbfb29f53f"),
    cpython("apply(palette)", "ebe53aeb7b89b6a25f1e099208bf46fbab404b8f23ff50c23a7619f9bb5f24e1"),
    cpython(
        "apply(o_g(5) | argmax(size) | subgrid)",
        "d1aac065a80961cb1f65de17e042a9368761665261144e55a170f99e9a467e63",
    ),
    cpython(
        "apply(fgpartition | merge | normalize)",
        "a8c9dc9522423c77335b64d1f39334c69d47419d1d2c141fa6ab1e4ecb70f7a5",
    ),
    cpython(
        "apply(hmirror) | hconcat | fgpartition | size",
        "1c8d0bf0972f6863aee293e651e3ec331967ca659e7b1f2bad046b95fc395aa1",
    ),
    cpython(
        "apply(fill(3, ofcolor(2)))",
        "a75566395e1429f7456c9f87f8b55841acbd273576066f95e9e8523f60279c1f",
    ),
    lowest("fgpartition", "f765620fdb7a80fec4a3bb9e80996b7f519546fa048ff50384c9621926afab24"),
    lowest("cover(ofcolor(8))", "a9fe222deb37ae6b802279d5437ba6e732d07e9404cfedafd54aaa7ccd105efd"),
    lowest(
        "o_g(5) | argmax(size) | underpaint",
        "1bb6bf117619720e598d56702388627fa76d19012a96650bff2928cf491558fc",
    ),
];
