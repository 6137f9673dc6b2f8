# The Debian package: daemon, command line, unit, configuration, pages of help.
# `./dev package` builds it, from the preset of that name, which installs below
# /usr and /etc.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME skrull)
set(CPACK_PACKAGE_VENDOR skrull)
set(CPACK_PACKAGE_CONTACT "The skrull maintainers <skrull@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_STRIP_FILES ON)
# The configuration is not below /usr, the prefix; it goes to DESTDIR, like the
# rest, and not to this machine.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)

# What a machine that runs the daemon needs; headers and libraries are not in it.
set(CPACK_COMPONENTS_ALL daemon)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME skrull)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_COMPONENT_DAEMON_DESCRIPTION
    "skrulld plans global batches of long-context training jobs: which sequence\n\
runs whole on which rank, and which is sharded over which ranks. skrullctl\n\
plans, checks, compares and manages jobs from the command line.")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Makes the user of the unit, in containers without systemd as well.
set(CPACK_DEBIAN_PACKAGE_DEPENDS
    "systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(scripts ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA
    ${scripts}/conffiles ${scripts}/postinst ${scripts}/prerm ${scripts}/postrm)
include(CPack)
