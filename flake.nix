{
  description = "Serve folders, git, databases and APIs as MCP resources";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      forAllSystems = function: nixpkgs.lib.genAttrs systems (system: function nixpkgs.legacyPackages.${system});
      manifest = (nixpkgs.lib.importTOML ./Cargo.toml).workspace.package;
    in
    {
      packages = forAllSystems (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "libris";
          version = manifest.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          cargoBuildFlags = [ "--package" "libris-cli" ];
          buildType = "dist";
          # They need databases, a display and real clients; ./test runs them.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            $out/bin/libris man man1
            installManPage man1/*
            installShellCompletion --cmd libris \
              --bash <($out/bin/libris completions bash) \
              --fish <($out/bin/libris completions fish) \
              --zsh <($out/bin/libris completions zsh)
          '';
          meta = {
            description = "Serve folders, git, databases and APIs as MCP resources";
            license = with pkgs.lib.licenses; [ mit asl20 ];
            mainProgram = "libris";
          };
        };
      });
    };
}
